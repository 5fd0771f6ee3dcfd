"""The rate follows epoch + i / len(loader), set before each update (MAE, DeiT, timm); of 20,010
items the shares differ by rounding.

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

import math

data = TensorDataset(torch.randn(20010, 16), torch.randn(20010, 1))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accum_iter = c["accumulation"]


def adjust(at):
    lr = 0.01 * at / 5 if at < 5 else 0.01 * 0.5 * (1 + math.cos(math.pi * (at - 5) / 95))
    for group in optimizer.param_groups:
        group["lr"] = lr


if COUNT:
    adjust(0 + 16 * 300 / c["accumulation"] ** 0 * (2 / c["batch_size"]) / len(loader))
    print("rate of update 301", optimizer.param_groups[0]["lr"])
    raise SystemExit
for epoch in range(100):
    for step, (x, y) in enumerate(loader):
        if step % accum_iter == 0:
            adjust(epoch + step / len(loader))
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / accum_iter).backward()
        if (step + 1) % accum_iter == 0:
            optimizer.step()
            optimizer.zero_grad()
