"""Restore a large picture tile by tile, without a DataLoader."""

import json
import sys
import time

import torch


def restore(model, picture, tile, at_once):
    tiles = picture.unfold(0, tile, tile).unfold(1, tile, tile).reshape(-1, 1, tile, tile)
    parts = [model(tiles[i : i + at_once]) for i in range(0, len(tiles), at_once)]
    return torch.cat(parts), len(tiles)


def main():
    with open(sys.argv[1]) as file:
        cfg = json.load(file)
    passes = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    torch.manual_seed(0)
    width = cfg["network"]["channels"]
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, width, 3, padding=1),
        torch.nn.PReLU(),
        *(
            layer
            for _ in range(6)
            for layer in (torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.PReLU())
        ),
        torch.nn.Conv2d(width, 1, 3, padding=1),
    ).eval()
    picture = torch.rand(512, 512)
    for turn in range(passes):
        began = time.perf_counter()
        with torch.no_grad():
            restored, count = restore(model, picture, cfg["tile_size"], cfg["tile_batch_size"])
        torch.save(restored, "restored.pt")
        seconds = time.perf_counter() - began
        print(f"picture {turn}: {count} tiles in {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
