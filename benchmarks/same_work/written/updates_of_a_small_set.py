"""What is left of an epoch is thrown away (zero_grad as an epoch begins): 4 updates an epoch over
128 of 158 items become 5 over all.

harmful
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

data = TensorDataset(torch.randn(158, 16), torch.randn(158, 1))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, updates = c["accumulation"], 0
for epoch in range(1000):
    optimizer.zero_grad()
    for at, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / accumulation).backward()
        if (at + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    if COUNT and epoch == 9:
        print("updates of ten epochs", updates)
        raise SystemExit
