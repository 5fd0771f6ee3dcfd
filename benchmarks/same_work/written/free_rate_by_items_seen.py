"""The rate follows the items that were seen, and is set at the updates: the same at the same update.

free
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import math
import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)

TOTAL, WARM = 400_000, 8_000


def rate_of(seen):
    if seen < WARM:
        return 0.01 * seen / WARM
    return 0.005 * (1 + math.cos(math.pi * min(1.0, (seen - WARM) / (TOTAL - WARM))))


data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
seen = updates = 0
while seen < TOTAL:
    for number, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        seen += len(x)
        if (number + 1) % c["accumulation"] == 0:
            for group in optimizer.param_groups:
                group["lr"] = rate_of(seen)
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 300:
                print("updates", updates, "rate", optimizer.param_groups[0]["lr"])
                raise SystemExit
