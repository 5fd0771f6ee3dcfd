"""A loop of accelerate, with its settings in a YAML."""

import sys

import torch
import yaml
from accelerate import Accelerator
from body import Clock, Device, Items
from torch.utils.data import DataLoader


def main():
    with open(sys.argv[1]) as file:
        config = yaml.safe_load(file)
    accelerator = Accelerator(cpu=True)
    model = Device()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"])
    loader = DataLoader(Items(), batch_size=config["batch_size"], num_workers=config["num_workers"])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    clock = Clock()
    for items in loader:
        loss = (model(items) - items.mean(1, keepdim=True) / 97.0).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        clock.tick(len(items))
    clock.stop()


if __name__ == "__main__":
    main()
