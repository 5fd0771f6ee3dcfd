"""Batches come of one group (aspect ratio, speaker), and a group's incomplete batch is dropped:
groups of fewer than 32 items are never seen.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

sizes = [10 + (number * 7) % 61 for number in range(1000)]
groups, low = [], 0
for size in sizes:
    groups.append(list(range(low, low + size)))
    low += size


class Groups(torch.utils.data.Sampler):
    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        batches = []
        for group in groups:
            order = random.sample(group, len(group))
            batches += [
                order[i : i + self.batch] for i in range(0, len(order) - self.batch + 1, self.batch)
            ]
        random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(len(group) // self.batch for group in groups)


data = TensorDataset(torch.randn(low, 16), torch.randn(low, 1), torch.arange(low))
loader = DataLoader(data, batch_sampler=Groups(c["batch_size"]))
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, count = c["accumulation"], 0
for epoch in range(1000):
    seen = 0
    for x, y, _ in loader:
        seen += len(x)
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / accumulation).backward()
        count += 1
        if count % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    if COUNT:
        print(
            "items of the epoch",
            seen,
            "of",
            low,
            "groups never seen",
            sum(len(g) < c["batch_size"] for g in groups),
        )
        raise SystemExit
