"""The batch sampler lets harder items in by the number of its batches: with 16 times fewer batches
an update later, the training stays with the easy ones.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import random
import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import Sampler, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class CompetenceBatchSampler(Sampler):
    """Items are sorted from easy to hard; the pool grows with the batches (Platanios et al.)."""

    def __init__(self, size, batch_size, total=2000, start=0.1):
        self.size, self.batch_size, self.total, self.start = size, batch_size, total, start

    def __len__(self):
        return self.size // self.batch_size

    def __iter__(self):
        for step in range(len(self)):
            share = min(1.0, (step / self.total * (1 - self.start**2) + self.start**2) ** 0.5)
            yield random.choices(range(int(share * self.size)), k=self.batch_size)


random.seed(0)
data = TensorDataset(torch.randn(40000, 16), torch.randn(40000, 1), torch.arange(40000))
loader = DataLoader(data, batch_sampler=CompetenceBatchSampler(40000, c["batch_size"]))
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
updates = 0
for epoch in range(1000):
    hardest = 0
    for step, (x, y, number) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        hardest = max(hardest, number.max().item())
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 100:
                print("hardest item until update 100", hardest)
                raise SystemExit
