"""Train an image classifier, as many a repository does: argparse and a YAML file."""

import argparse
import time

import torch
import yaml
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.004)  # the disk
        image = torch.linspace(0, 1, 3 * 32 * 32).reshape(3, 32, 32).roll(index, 2)
        return image, index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="classify.yaml")
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    with open(args.config) as file:
        cfg = yaml.safe_load(file)
    data = cfg["data"]
    loader = {"batch_size": data["batch_size"], "num_workers": data["workers"]}
    train = DataLoader(Photos(512), shuffle=True, drop_last=True, **loader)
    val = DataLoader(Photos(64), **loader)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, 2, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, 2, 1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 64, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"])
    for epoch in range(args.epochs):
        began, seen = time.perf_counter(), 0
        for images, labels in train:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(images)
        print(f"epoch {epoch}: {seen} images in {time.perf_counter() - began:.3f} s", flush=True)
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in val)
        print(f"  loss {loss.item():.3f}, accuracy {right / 64:.3f}", flush=True)


if __name__ == "__main__":
    main()
