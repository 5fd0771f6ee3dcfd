"""Validation, plateau schedule and early stopping every 2000 batches (`count % 2000 == 0`): 16
times as many samples between two looks.

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

data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
held = torch.randn(200, 16), torch.randn(200, 1)
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
accumulation, count, best, bad, samples = c["accumulation"], 0, 1e9, 0, 0
for epoch in range(1000):
    for x, y in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / accumulation).backward()
        count, samples = count + 1, samples + len(x)
        if count % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
        if count % 2000 == 0:
            with torch.no_grad():
                valid = F.mse_loss(net(held[0]), held[1]).item()
            plateau.step(valid)
            best, bad = min(best, valid), 0 if valid < best else bad + 1
            if COUNT:
                print(
                    "look after",
                    samples,
                    "samples,",
                    count // accumulation,
                    "updates, lr",
                    optimizer.param_groups[0]["lr"],
                    "valid",
                    round(valid, 4),
                    "bad",
                    bad,
                )
            if bad == 5:
                raise SystemExit
