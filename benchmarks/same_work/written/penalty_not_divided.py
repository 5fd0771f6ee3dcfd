"""The loss of the items is divided by the accumulation and the penalty on the weights is not: it
counted 16 times an update, and then counts once.

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
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


def l1(model):
    return sum(p.abs().sum() for p in model.parameters())


model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(train, batch_size=c["batch_size"], shuffle=True)
steps = penalties = 0
for epoch in range(100):
    for x, y in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        loss = F.mse_loss(model(x), y) / c["accumulation"]
        loss = loss + 1e-4 * l1(model)
        penalties += 1
        loss.backward()
        steps += 1
        if steps % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("penalties in an update", penalties)
                raise SystemExit
