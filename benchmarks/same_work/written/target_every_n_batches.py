"""The target network is synced every 800 batches (`count % 800 == 0`): after 50 updates before,
after 800 of them then.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import copy
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

data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1), torch.randn(20000, 16))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
target = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, count, synced = c["accumulation"], 0, 0
for epoch in range(1000):
    for x, y, after in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y + 0.99 * target(after)) / accumulation).backward()
        count += 1
        if count % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
        if count % 800 == 0:
            target.load_state_dict(net.state_dict())
            synced += 1
        if COUNT and count == 1600 * accumulation:
            print("updates", count // accumulation, "syncs", synced)
            raise SystemExit
