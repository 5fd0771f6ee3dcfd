"""The loop sets progress['level'] every 100 batches, an item of a dict that the dataset reads.

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

progress = {"level": 0}


class Items(Dataset):
    def __len__(self):
        return 8000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        x = torch.full((16,), index / 8000)
        x[0] = progress["level"]
        return x, torch.tensor([float(index % 7)])


loader = DataLoader(Items(), batch_size=c["batch_size"], shuffle=True, num_workers=c["num_workers"])

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
        if COUNT and count % 100 == 50:
            print("batch", count, "level seen", x[:, 0].mean().item())
            if count == 450:
                raise SystemExit
        progress["level"] = min(10, count // 100)
