"""The strength of a transform whose class is a library's (`transform.p`) is set before each
epoch; workers that stay keep the first one. Short epochs.

harmful
batch_size: 16
num_workers: 2
persistent_workers: false -> true
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
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.001)
        return self.transform(torch.ones(16)), torch.tensor([float(index % 7)])


transform = nn.Dropout(0.0)
loader = DataLoader(
    Items(transform),
    batch_size=c["batch_size"],
    shuffle=True,
    num_workers=c["num_workers"],
    persistent_workers=c["persistent_workers"],
)

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    transform.p = min(0.5, 0.1 * epoch)
    gone = 0.0
    for x, y in loader:
        gone += (x == 0).float().mean().item() / len(loader)
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "share dropped", round(gone, 3))
        if epoch == 3:
            raise SystemExit
