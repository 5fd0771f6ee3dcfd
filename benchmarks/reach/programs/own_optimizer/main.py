"""LARS written out by hand, over gradients that are asked for by name."""

import argparse
import json

import torch
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Blurred bars of ten directions."""

    def __init__(self, n):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(10, (n,), generator=generator)
        self.angles = self.labels * (torch.pi / 10)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        line = torch.linspace(-1, 1, 28)
        y, x = torch.meshgrid(line, line, indexing="ij")
        distance = x * torch.sin(self.angles[index]) - y * torch.cos(self.angles[index])
        return torch.exp(-(distance**2) * 40)[None], self.labels[index]


class LARS:
    """Layer-wise rates; no subclass of torch.optim.Optimizer."""

    def __init__(self, params, lr, momentum=0.9, trust=0.02):
        self.params = list(params)
        self.lr, self.momentum, self.trust = lr, momentum, trust
        self.buffers = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def apply(self, grads):
        for p, g, m in zip(self.params, grads, self.buffers):
            ratio = self.trust * p.norm() / (g.norm() + 1e-8) if p.dim() > 1 else 1.0
            m.mul_(self.momentum).add_(g * ratio)
            p.sub_(self.lr * m)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default="config.json")
    cfg = json.load(open(p.parse_args().config))
    torch.manual_seed(cfg["seed"])
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 25, 10),
    )  # fmt: skip
    loader = DataLoader(
        Digits(cfg["train_size"]),
        batch_size=cfg["batch_size"],
        shuffle=True,
        num_workers=cfg["workers"],
    )
    optimizer = LARS(model.parameters(), cfg["lr"])
    clock = StepClock()
    for epoch in range(cfg["epochs"]):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.apply(torch.autograd.grad(loss, optimizer.params))
            clock.tick(len(x))
            if step % 100 == 0:
                print(epoch, step, loss.item())


if __name__ == "__main__":
    main()
