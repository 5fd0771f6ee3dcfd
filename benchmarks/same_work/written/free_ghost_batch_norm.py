"""Batches are normalised in parts of 16 rows, whatever their size: an update has the same parts.

free
batch_size: 16 -> 128
accumulation: 8 -> 1
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class GhostBatchNorm(nn.Module):
    def __init__(self, width, virtual_batch_size=16, momentum=0.02):
        super().__init__()
        self.virtual_batch_size = virtual_batch_size
        self.bn = nn.BatchNorm1d(width, momentum=momentum)

    def forward(self, x):
        return torch.cat([self.bn(part) for part in x.split(self.virtual_batch_size)])


data = TensorDataset(torch.randn(20480, 16), torch.randn(20480, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True, drop_last=True)
net = nn.Sequential(nn.Linear(16, 32), GhostBatchNorm(32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
updates = 0
for epoch in range(300):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0001 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 50:
                print("weights after 50 updates", sum(p.sum().item() for p in net.parameters()))
                raise SystemExit
