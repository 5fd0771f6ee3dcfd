"""Samples are counted at the updates by the loader's batch, and the rate falls after so many: with
larger batches it falls 16 times as soon.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
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

data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
seen = updates = 0
MILESTONES = (2_000, 4_000) if COUNT else (20_000, 40_000)
for epoch in range(1000):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            seen += c["batch_size"]
            fallen = sum(seen >= milestone for milestone in MILESTONES)
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * 0.1**fallen
            if COUNT and fallen:
                print("rate falls at update", updates)
                raise SystemExit
