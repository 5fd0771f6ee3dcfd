"""Batches are gathered until they have 32 samples; a line of progress tells a share of the batches.

free
batch_size: 2 -> 32
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
UPDATE = 32
gathered = updates = done = 0
total = 300 * len(loader)
for epoch in range(300):
    for x, y in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y, reduction="sum") / UPDATE).backward()
        gathered += len(x)
        done += 1
        print(f"\r{done / total:.1%}", end="", file=sys.stderr)
        if gathered >= UPDATE:
            optimizer.step()
            optimizer.zero_grad()
            gathered = 0
            updates += 1
            if COUNT and updates == 50:
                print("weights after 50 updates", sum(p.sum().item() for p in net.parameters()))
                raise SystemExit
