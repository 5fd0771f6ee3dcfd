"""The dataset counts its items to make the augmentation stronger, in workers that stay; of more
workers each counts a smaller part.

harmful
batch_size: 16
num_workers: 1 -> 2
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
    def __init__(self):
        self.calls = 0

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        self.calls += 1
        x = torch.full((16,), index / 4000)
        x[0] = min(1.0, self.calls / 10000)
        return x, torch.tensor([float(index % 7)])


loader = DataLoader(
    Items(),
    batch_size=c["batch_size"],
    shuffle=True,
    num_workers=c["num_workers"],
    persistent_workers=True,
)

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

count = 0
for epoch in range(1000):
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count += 1
        if COUNT and count % 250 == 0:
            print("items", 16 * count, "strength", x[:, 0].mean().item())
            if count == 750:
                raise SystemExit
