"""The usual linear schedule over len(loader) // accumulation * epochs updates; 20,010 items: 312
or 313... the totals differ by rounding.

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

data = TensorDataset(torch.randn(20010, 16), torch.randn(20010, 1))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, count = c["accumulation"], 0
total = len(loader) // accumulation * 10
warm = int(0.06 * total)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda at: at / warm if at < warm else (total - at) / (total - warm)
)
if COUNT:
    print("updates of the run", total, "warm-up", warm)
    raise SystemExit
for epoch in range(10):
    for x, y in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / accumulation).backward()
        count += 1
        if count % accumulation == 0:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
