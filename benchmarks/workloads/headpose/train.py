"""Trains the head-pose network: python benchmarks/workloads/headpose/train.py --dataset biwi."""

import argparse
import json
import os
from pathlib import Path

import faces
import torch
from trainer import Trainer

CACHE = os.environ.get("WORKLOADS_CACHE", "~/.cache/gpu-advisor-workloads")


def main() -> None:
    """Reads the flags, draws the data set if it is not there, and trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", choices=sorted(faces.COUNTS), default="biwi")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--max-steps", type=int, help="stop each epoch after so many steps")
    parser.add_argument("--scale", type=int, default=1, help="a wider network on larger images")
    parser.add_argument("--data-root", type=Path, default=Path(CACHE).expanduser() / "headpose")
    parser.add_argument("--out", type=Path, default=Path("experiments/headpose"))
    args = parser.parse_args()

    folder = faces.dataset(args.dataset, args.data_root, args.seed)
    trainer = Trainer(folder, args.batch_size, args.lr, args.scale, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    for epoch in range(args.epochs):
        loss = trainer.train_epoch(args.max_steps)
        error = trainer.mean_error_deg()
        print(f"epoch {epoch + 1} loss {loss:.4f} MAE {error:.2f} deg", flush=True)
        metrics = {"epoch": epoch + 1, "loss": loss, "mae_deg": error}
        (args.out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        torch.save(trainer.model.state_dict(), args.out / "model.pt")


if __name__ == "__main__":
    main()
