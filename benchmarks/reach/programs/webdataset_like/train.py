import argparse

import torch
from shards import WebDataset
from step_clock import StepClock
from torch import nn


def get_args():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--train-data", default="shards/train-*.tar", help="shards to train on")
    parser.add_argument("--batch-size", type=int, default=16, help="batch size per process")
    parser.add_argument("--workers", type=int, default=0, help="dataloader workers")
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = get_args()
    torch.manual_seed(0)
    dataset = WebDataset(args.train_data).shuffle(200).decode().batched(args.batch_size)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=args.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    clock = StepClock()
    for epoch in range(args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick(len(images))
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
