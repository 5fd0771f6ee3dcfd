import json
import sys

import torch
from patches import Patches
from step_clock import StepClock
from torch import nn


def main():
    with open(sys.argv[1]) as f:
        settings = json.load(f)
    torch.manual_seed(0)
    width, classes = settings["network"]["width"], settings["network"]["classes"]
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes),
    )  # fmt: skip
    loading = settings["loader"]
    loader = torch.utils.data.DataLoader(
        Patches(classes),
        batch_size=loading["batch"],
        shuffle=True,
        num_workers=loading["processes"],
        multiprocessing_context=loading["start_method"] if loading["processes"] else None,
        persistent_workers=loading["processes"] > 0,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["training"]["rate"], momentum=0.9)
    clock = StepClock()
    for n in range(settings["training"]["rounds"]):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick(len(x))
        print(f"round {n}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
