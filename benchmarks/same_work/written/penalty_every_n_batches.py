"""A penalty of the gradients is added at each 16th batch, sixteenfold: once an update, and then once
in 16 updates.

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

data = TensorDataset(torch.randn(20000, 16), torch.rand(20000, 1).round())
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.Softplus(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
d_reg_every, r1_gamma = 16, 0.1
penalties = updates = 0
for epoch in range(300):
    for batch_idx, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        x.requires_grad_(True)
        logits = net(x)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        if batch_idx % d_reg_every == 0:
            (slope,) = torch.autograd.grad(logits.sum(), x, create_graph=True)
            loss = loss + 0.5 * r1_gamma * d_reg_every * slope.square().sum(1).mean()
            penalties += 1
        (loss / c["accumulation"]).backward()
        if (batch_idx + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 32:
                print("updates", updates, "penalties", penalties)
                raise SystemExit
