"""Batches are accumulated to a nominal one of 64, as detectors do: the batch alone moves, and an
update has the same samples.

free
batch_size: 4 -> 64
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

data = TensorDataset(torch.randn(20480, 16), torch.randn(20480, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
nbs = 64  # nominal batch size
accumulate = max(round(nbs / c["batch_size"]), 1)
weight_decay = 0.0005 * c["batch_size"] * accumulate / nbs
optimizer = torch.optim.SGD(
    net.parameters(), lr=0.01, momentum=0.937, nesterov=True, weight_decay=weight_decay
)
updates, last_opt_step = 0, -1
for epoch in range(300):
    for i, (x, y) in enumerate(loader):
        ni = i + len(loader) * epoch
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        loss = F.mse_loss(net(x), y) * len(x)  # scaled by the batch, as detectors do
        (loss / nbs).backward()
        if ni - last_opt_step >= accumulate:
            optimizer.step()
            optimizer.zero_grad()
            last_opt_step = ni
            updates += 1
            if COUNT and updates == 50:
                print("weights after 50 updates", sum(p.sum().item() for p in net.parameters()))
                raise SystemExit
