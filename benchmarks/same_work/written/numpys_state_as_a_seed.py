"""Seeded by an array numpy state[1][0] is always 2**31, so each epoch draws the same numbers.

harmful
batch_size: 16
num_workers: 0 -> 2
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
from torch.utils.data import DataLoader, Dataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Items(Dataset):
    def __len__(self):
        return 20000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        return torch.full((16,), np.random.rand()), torch.tensor([float(index % 7)])


def init(number):
    np.random.seed(np.random.get_state()[1][0] + number)


loader = DataLoader(
    Items(),
    batch_size=c["batch_size"],
    shuffle=True,
    num_workers=c["num_workers"],
    worker_init_fn=init,
)

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    for at, (x, y) in enumerate(loader):
        if COUNT:
            print("epoch", epoch, "draws", x[:3, 0].tolist())
            break
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT and epoch == 3:
        raise SystemExit
