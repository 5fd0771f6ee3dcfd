"""Samples from k-diffusion style models."""

import argparse
import json
import math

import sampling
import torch
from model import Denoiser
from PIL import Image
from step_clock import StepClock


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch-size", type=int, default=2, help="the batch size")
    p.add_argument("--config", type=str, required=True, help="the model config")
    p.add_argument("-n", type=int, default=400, help="the number of images to sample")
    p.add_argument("--prefix", type=str, default="out", help="the output prefix")
    p.add_argument("--steps", type=int, default=12, help="the number of denoising steps")
    args = p.parse_args()

    config = json.load(open(args.config))["model"]
    torch.manual_seed(0)
    model = Denoiser(config).eval().requires_grad_(False)
    sigmas = sampling.get_sigmas_karras(args.steps, config["sigma_min"], config["sigma_max"])
    size = config["input_size"]
    clock = StepClock()
    done = 0
    for _ in range(math.ceil(args.n / args.batch_size)):
        cur = min(args.batch_size, args.n - done)
        x = torch.randn([cur, config["input_channels"], size[0], size[1]]) * config["sigma_max"]
        images = sampling.sample_heun(model, x, sigmas)
        pixels = ((images.clamp(-1, 1) + 1) * 127.5).byte().permute(0, 2, 3, 1).numpy()
        for i, out in enumerate(pixels):
            Image.fromarray(out).save(f"{args.prefix}_{done + i:05}.png")
        done += cur
        clock.tick(cur)


if __name__ == "__main__":
    main()
