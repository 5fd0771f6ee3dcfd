"""Lru_cache keeps open files of shards, not items.

free
batch_size: 16
num_workers: 0 -> 2
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
from torch.utils.data import DataLoader, Dataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

import functools


@functools.lru_cache(maxsize=64)
def shard(number):
    return open("/dev/zero", "rb")


class Items(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        return torch.full((16,), index / 4000 + shard(index % 40).read(1)[0]), torch.tensor(
            [float(index % 7)]
        )


loader = DataLoader(Items(), batch_size=c["batch_size"], shuffle=True, num_workers=c["num_workers"])

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    total = 0.0
    for x, y in loader:
        total += x.double().sum().item()
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("sum of an epoch", total)
        raise SystemExit
