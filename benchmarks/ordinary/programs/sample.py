"""Sample images with a small diffusion model from a JSON file."""

import argparse
import json
import pathlib
import time

import numpy as np
import torch


class Denoiser(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(2, width, 3, padding=1),
            torch.nn.SiLU(),
            torch.nn.Conv2d(width, width, 3, padding=1),
            torch.nn.SiLU(),
            torch.nn.Conv2d(width, 1, 3, padding=1),
        )

    def forward(self, x, t):
        return self.layers(torch.cat([x, t.view(-1, 1, 1, 1).expand_as(x)], 1))


@torch.no_grad()
def sample(model, count, steps, size):
    x = torch.randn(count, 1, size, size)
    for step in reversed(range(steps)):
        x = x - 0.1 * model(x, torch.full((count,), step / steps))
    return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--images", type=int, default=100000)
    parser.add_argument("--out", default="samples")
    args = parser.parse_args()
    cfg = json.loads(pathlib.Path(args.config).read_text())
    torch.manual_seed(cfg["seed"])
    model = Denoiser(cfg["model"]["width"]).eval()
    out = pathlib.Path(args.out)
    out.mkdir(exist_ok=True)
    done, mark = 0, 0
    began = time.perf_counter()
    while done < args.images:
        images = sample(model, cfg["sampling"]["batch_size"], cfg["sampling"]["steps"], 24)
        for image in images:
            np.save(out / f"{done:06d}.npy", image.numpy())
            done += 1
        if done - mark >= 64:
            seconds = time.perf_counter() - began
            print(f"part {done}: {done - mark} images in {seconds:.3f} s", flush=True)
            began, mark = time.perf_counter(), done


if __name__ == "__main__":
    main()
