"""The dataset has an update() of its own that is called before training; the loop calls
meter.update().

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


class Meter:
    def __init__(self):
        self.total = 0.0

    def update(self, value):
        self.total += value


class Items(Dataset):
    def __init__(self):
        self.paths = []

    def update(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        return torch.full((16,), self.paths[index] / 4000), torch.tensor([float(index % 7)])


data, meter = Items(), Meter()
data.update(list(range(4000)))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True, num_workers=c["num_workers"])

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
        meter.update(loss.item())
    if COUNT:
        print("sum of an epoch", total)
        raise SystemExit
