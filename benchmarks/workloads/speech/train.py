"""Trains the speech encoder: python benchmarks/workloads/speech/train.py --config CONFIG."""

import argparse
import json
import os
import runpy
import time
from pathlib import Path
from typing import Any

import torch
from network import SpeechEncoder
from torch import nn
from torch.utils.data import DataLoader
from utterances import Utterances, dataset, padded

CACHE = os.environ.get("WORKLOADS_CACHE", "~/.cache/gpu-advisor-workloads")
HELD_OUT = 64
"""The last utterances are never trained on."""


def main() -> None:
    """Reads the flags and the class with the settings, then trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="Python file with a Config")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--max-steps", type=int, help="stop each epoch after so many steps")
    parser.add_argument("--scale", type=int, default=1, help="a wider model on wider features")
    parser.add_argument("--data-root", type=Path, default=Path(CACHE).expanduser() / "speech")
    args = parser.parse_args()
    config: Any = runpy.run_path(str(args.config))["Config"]
    if args.epochs is not None:
        config.EPOCHS = args.epochs
    if args.batch_size is not None:
        config.BATCH_SIZE = args.batch_size
    for name in ("FEATURES", "CHANNELS", "HIDDEN"):
        setattr(config, name, getattr(config, name) * args.scale)
    train(config, args.data_root, args.max_steps)


def train(config: Any, data_root: Path, max_steps: int | None) -> None:
    """Runs the epochs; writes encoder.pt and metrics.json into OUTPUT_DIR after each."""
    torch.manual_seed(config.SEED)
    torch.backends.cudnn.benchmark = config.CUDNN_BENCHMARK
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    loader, held_out = loaders(config, data_root)
    model = SpeechEncoder(config.FEATURES, config.CHANNELS, config.HIDDEN, config.EMOTIONS)
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type, enabled=config.USE_AMP and device.type == "cuda")
    folder = Path(config.OUTPUT_DIR)
    folder.mkdir(parents=True, exist_ok=True)

    for epoch in range(config.EPOCHS):
        model.train()
        total, right, seen, started = 0.0, 0, 0, time.perf_counter()
        for step, batch in enumerate(loader):
            if step == max_steps:
                break
            features, lengths, emotions = (part.to(device) for part in batch)
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast(device.type, dtype=half, enabled=config.USE_AMP):
                logits = model(features, lengths)
                loss = nn.functional.cross_entropy(logits, emotions)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
            right += (logits.argmax(dim=1) == emotions).sum().item()
            seen += len(emotions)
        accuracy, seconds = evaluate(model, held_out, device), time.perf_counter() - started
        print(f"epoch {epoch + 1} loss {total / (step + 1):.4f} accuracy {right / seen:.3f} "
              f"held out {accuracy:.3f} {seen / seconds:.0f} samples/s", flush=True)  # fmt: skip
        metrics = {"epoch": epoch + 1, "loss": total / (step + 1), "held_out": accuracy}
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        torch.save(model.state_dict(), folder / "encoder.pt")


def loaders(config: Any, data_root: Path) -> tuple[DataLoader, DataLoader]:
    """Training and held-out utterances, both with the loader settings of the config."""
    folder = dataset(data_root, config.UTTERANCES, config.FEATURES, config.EMOTIONS, config.SEED)
    known = Utterances(folder, slice(None, -HELD_OUT), augment=True)
    unseen = Utterances(folder, slice(-HELD_OUT, None), augment=False)
    train_loader = DataLoader(
        known,
        batch_size=config.BATCH_SIZE,
        shuffle=True,
        num_workers=config.NUM_WORKERS,
        prefetch_factor=config.PREFETCH_FACTOR,
        pin_memory=config.PIN_MEMORY,
        collate_fn=padded,
    )
    held_out = DataLoader(unseen, batch_size=config.BATCH_SIZE, collate_fn=padded)
    return train_loader, held_out


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Share of the held-out utterances whose emotion is told right."""
    model.eval()
    right = 0
    for features, lengths, emotions in loader:
        logits = model(features.to(device), lengths.to(device))
        right += (logits.argmax(dim=1).cpu() == emotions).sum().item()
    return right / len(loader.dataset)


if __name__ == "__main__":
    main()
