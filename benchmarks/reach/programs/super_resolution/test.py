"""Enlarge the test images; each result is saved under the name of its input."""

import argparse
import os

import numpy as np
import torch
import yaml
from PIL import Image
from step_clock import StepClock
from torch import nn


class Made(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return {"lq": torch.rand(3, 24, 24, generator=g), "lq_path": f"img_{index:04d}.png"}


class Net(nn.Module):
    def __init__(self, feat, scale):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, feat, 3, 1, 1), nn.ReLU(), nn.Conv2d(feat, feat, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(feat, 3 * scale**2, 3, 1, 1), nn.PixelShuffle(scale),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


def tensor2img(tensor):
    return (tensor.squeeze(0).clamp(0, 1).permute(1, 2, 0).numpy() * 255).astype(np.uint8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-opt", type=str, required=True, help="Path to option YAML file.")
    opt = yaml.safe_load(open(parser.parse_args().opt))
    torch.manual_seed(0)
    net = Net(opt["num_feat"], opt["scale"]).eval()
    test = opt["datasets"]["test"]
    loader = torch.utils.data.DataLoader(
        Made(test["images"]), batch_size=test["batch_size"], num_workers=test["num_worker_per_gpu"]
    )
    folder = os.path.join(opt["path"]["results_root"], opt["name"], test["name"])
    os.makedirs(folder, exist_ok=True)
    clock = StepClock()
    for val_data in loader:
        name = os.path.splitext(os.path.basename(val_data["lq_path"][0]))[0]
        with torch.no_grad():
            output = net(val_data["lq"])
        image = tensor2img(output[:1])
        Image.fromarray(image).save(os.path.join(folder, f"{name}_{opt['name']}.png"))
        clock.tick(len(val_data["lq"]))


if __name__ == "__main__":
    main()
