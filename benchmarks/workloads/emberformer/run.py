"""Trains Emberformer: python -m benchmarks.workloads.emberformer.run -p train -c CONFIG."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.workloads.emberformer import fires
from benchmarks.workloads.emberformer.data import CHANNELS, EpochSampler, FireWindows
from benchmarks.workloads.emberformer.network import Emberformer

LOG_EVERY = 20


def main(argv: list[str] | None = None) -> None:
    """Reads the command line and the config, then trains."""
    parser = argparse.ArgumentParser(prog="emberformer")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("-p", "--phase", choices=["train"], default="train")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--max_steps", type=int, help="stop after this many optimizer steps")
    parser.add_argument("--scale", type=int, default=1, help="wider and deeper on larger maps")
    args = parser.parse_args(argv)
    cfg = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    if args.epochs is not None:
        cfg["train"]["epochs"] = args.epochs
    if args.batch_size is not None:
        cfg["data"]["batch_size"] = args.batch_size
    grow(cfg, args.scale)
    train(cfg, args.max_steps)


def grow(cfg: dict[str, Any], scale: int) -> None:
    """Makes the same program `scale` times wider, deeper and on larger maps, to load a big GPU."""
    for name in ("d_model", "nhead", "dim_feedforward", "num_layers"):
        cfg["model"][name] *= scale
    cfg["data"]["map_size"] *= scale
    cfg["data"]["crop"] *= scale


def train(cfg: dict[str, Any], max_steps: int | None) -> None:
    """Runs the epochs; writes checkpoint.pt and metrics.json into `output.dir` after each."""
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(cfg["output"]["dir"])
    folder.mkdir(parents=True, exist_ok=True)
    loader, held_out = loaders(cfg)
    model = Emberformer(CHANNELS, cfg["data"]["frames"], **cfg["model"]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(cfg["train"]["lr"]))
    accumulation = cfg["train"]["accumulation_steps"]
    bf16 = cfg["train"]["precision"] == "bf16"

    step, started = 0, time.perf_counter()
    for epoch in range(cfg["train"]["epochs"]):
        losses: list[Tensor] = []
        for index, batch in enumerate(loader):
            frames, target = (part.to(device, non_blocking=True) for part in batch)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = fire_loss(model(frames), target)
            (loss / group_size(index, accumulation, len(loader))).backward()
            losses.append(loss.detach())
            if (index + 1) % accumulation and index + 1 < len(loader):
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % LOG_EVERY == 0:
                recent = torch.stack(losses[-LOG_EVERY * accumulation :]).mean()
                print(f"step {step}  loss {recent:.4f}  {time.perf_counter() - started:.1f} s",
                      flush=True)  # fmt: skip
            if step == max_steps:
                break
        metrics = {"epoch": epoch + 1, "step": step, "loss": torch.stack(losses).mean().item()}
        metrics |= validate(model, held_out, device)
        print("epoch {epoch} loss {loss:.4f} val loss {val_loss:.4f} val IoU {val_iou:.4f}"
              .format(**metrics), flush=True)  # fmt: skip
        torch.save(model.state_dict(), folder / "checkpoint.pt")
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        if step == max_steps:
            break


def loaders(cfg: dict[str, Any]) -> tuple[DataLoader, DataLoader]:
    """Training and held-out loaders, both with the loader settings of `data`."""
    data = cfg["data"]
    settings = {
        "batch_size": data["batch_size"],
        "num_workers": data["num_workers"],
        "pin_memory": data["pin_memory"],
        "drop_last": data["drop_last"],
    }
    known = fires.dataset(data["fires"], data["map_size"], cfg["seed"])
    unseen = fires.dataset(data["held_out_fires"], data["map_size"], cfg["seed"] + 1)
    windows = FireWindows(known, data["frames"], data["crop"], augment=True)
    sampler = EpochSampler(len(windows), cfg["seed"])
    held_out = FireWindows(unseen, data["frames"], data["crop"], augment=False)
    return DataLoader(windows, sampler=sampler, **settings), DataLoader(held_out, **settings)


def group_size(index: int, accumulation: int, batches: int) -> int:
    """Micro batches that share an update with micro batch `index`; the last group may be short."""
    return min(accumulation, batches - index // accumulation * accumulation)


def fire_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy over all cells."""
    return nn.functional.binary_cross_entropy_with_logits(logits.float(), target)


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader, device: torch.device) -> dict[str, float]:
    """Mean loss and intersection over union of the burning cells on fires never trained on."""
    model.eval()
    losses, both, either = [], 0, 0
    for frames, target in loader:
        logits, burning = model(frames.to(device)), target.to(device)
        losses.append(fire_loss(logits, burning))
        both += ((logits > 0) & (burning > 0)).sum()
        either += ((logits > 0) | (burning > 0)).sum()
    model.train()
    return {"val_loss": torch.stack(losses).mean().item(), "val_iou": (both / either).item()}


if __name__ == "__main__":
    main()
