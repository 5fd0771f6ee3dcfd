"""Trains the networks on generated portraits: python -m ...relighting.train -c CONFIG OUT."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import yaml
from torch import Tensor
from torch.nn import functional

from benchmarks.workloads.relighting import portraits
from benchmarks.workloads.relighting.stages import build

BATCH = 16
LOG_EVERY = 50
STEPS = 600


def main(argv: list[str] | None = None) -> None:
    """Writes the weights, in half precision, to the given file."""
    parser = argparse.ArgumentParser(prog="relighting.train")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("out", type=Path)
    args = parser.parse_args(argv)
    cfg = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    torch.manual_seed(cfg["seed"])
    networks = build(cfg, 1)
    segmenter, albedo_net, shadow_net = networks
    optimizer = torch.optim.AdamW(networks.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, args.steps, pct_start=0.1)
    rng, size = np.random.default_rng(cfg["seed"] + 1), cfg["segmentation"]["size"]
    started = time.perf_counter()
    for step in range(1, args.steps + 1):
        image, mask, albedo, shading = batch(rng, size)
        colour = albedo_net(torch.cat([image * mask, mask], dim=1))
        light = shadow_net(torch.cat([image, colour.detach()], dim=1))
        losses = [
            functional.binary_cross_entropy_with_logits(segmenter(image), mask[:, 0]),
            ((colour - albedo).abs() * mask).mean(),
            ((light - shading).abs() * mask).mean(),
        ]
        optimizer.zero_grad()
        sum(losses, torch.zeros(())).backward()
        torch.nn.utils.clip_grad_norm_(networks.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % LOG_EVERY == 0:
            parts = "  ".join(f"{loss.item():.4f}" for loss in losses)
            print(f"step {step}  losses {parts}  {time.perf_counter() - started:.0f} s", flush=True)
    torch.save({name: value.half() for name, value in networks.state_dict().items()}, args.out)


def batch(rng: np.random.Generator, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, masks, albedo and shading of BATCH new portraits, all (B, C, size, size)."""
    people = [portraits.portrait(rng) for _ in range(BATCH)]
    return (
        stacked([person.image for person in people], size),
        stacked([person.mask[..., None] for person in people], size),
        stacked([person.albedo for person in people], size),
        stacked([person.shading[..., None] for person in people], size),
    )


def stacked(images: list[portraits.Array], size: int) -> Tensor:
    """(B, C, size, size) of images (H, W, C) of any sizes."""
    each = [torch.from_numpy(image).permute(2, 0, 1)[None] for image in images]
    return torch.cat([functional.interpolate(image, (size, size)) for image in each])


if __name__ == "__main__":
    main()
