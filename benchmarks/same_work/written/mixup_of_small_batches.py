"""Mixup within the batch: an item of a batch of two meets itself half of the time, one of 32 hardly
ever.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import argparse
import os
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--alpha", type=float, default=0.4)
    args = parser.parse_args()
    with open(args.config) as file:
        parser.set_defaults(**yaml.safe_load(file))
    return parser.parse_args()


def mixup(x, y, alpha):
    share = np.random.beta(alpha, alpha)
    order = torch.randperm(len(x))
    return share * x + (1 - share) * x[order], share * y + (1 - share) * y[order], order


def main():
    args = parse()
    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    labels = F.one_hot(torch.arange(20000) % 10, 10).float()
    data = TensorDataset(torch.randn(20000, 16), labels)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    alone = total = 0
    for epoch in range(1000):
        for number, (x, y) in enumerate(loader):
            time.sleep(0.012 + 0.0004 * len(x))  # the device
            x, y, order = mixup(x, y, args.alpha)
            alone += (order == torch.arange(len(x))).sum().item()
            total += len(x)
            (F.cross_entropy(net(x), y) / args.accumulation).backward()
            if (number + 1) % args.accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
        if COUNT:
            print("items of an epoch", total, "mixed with themselves", alone)
            return


main()
