"""Four tasks take turns by batches: an update was over all four, and becomes one of a single
task.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import itertools
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


def loader_of():
    return iter(
        DataLoader(
            TensorDataset(torch.randn(200000, 16), torch.randn(200000, 1)),
            batch_size=c["batch_size"],
            shuffle=True,
        )
    )


loaders = [loader_of() for _ in range(4)]
body = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Dropout(0.1))
heads = nn.ModuleList(nn.Linear(32, 1) for _ in range(4))
net = nn.ModuleList([body, heads])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, tasks = c["accumulation"], set()
for count in itertools.count(1):
    task = random.randrange(4)
    tasks.add(task)
    x, y = next(loaders[task])
    time.sleep(0.012 + 0.0004 * len(x))  # the device
    (F.mse_loss(heads[task](body(x)), y) / accumulation).backward()
    if count % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
        if COUNT:
            print("update", count // accumulation, "over tasks", sorted(tasks))
            if count // accumulation == 4:
                raise SystemExit
        tasks = set()
