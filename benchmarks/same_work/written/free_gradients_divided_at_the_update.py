"""Gradients are summed and divided by the accumulation just before the step.

free
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

data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, count = c["accumulation"], 0
for epoch in range(10):
    for x, y in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        F.mse_loss(net(x), y).backward()
        count += 1
        if count % accumulation == 0:
            for each in net.parameters():
                each.grad /= accumulation
            optimizer.step()
            optimizer.zero_grad()
            if COUNT and count // accumulation == 50:
                print(
                    "weights after 50 updates", sum(p.abs().sum().item() for p in net.parameters())
                )
                raise SystemExit
