"""The collator mixes the pictures of a batch by one share that it draws: an update over 16 batches
held 16 shares, and over one larger batch it holds one.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import os
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, default_collate

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class MixUp:
    def __init__(self, alpha, classes):
        self.alpha, self.classes = alpha, classes

    def __call__(self, x, y):
        share = np.random.beta(self.alpha, self.alpha)
        y = F.one_hot(y, self.classes).float()
        return share * x + (1 - share) * x.roll(1, 0), share * y + (1 - share) * y.roll(1, 0)


mixup = MixUp(0.8, 10)


def collate(batch):
    return mixup(*default_collate(batch))


data = TensorDataset(torch.randn(20000, 16), torch.randint(0, 10, (20000,)))
loader = DataLoader(data, c["batch_size"], shuffle=True, collate_fn=collate)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
shares = []
for epoch in range(1000):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        loss = F.cross_entropy(net(x), y)
        (loss / c["accumulation"]).backward()
        shares.append(round(y.max(1).values.min().item(), 3))
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("shares in the first update", len(set(shares)), shares)
                raise SystemExit
