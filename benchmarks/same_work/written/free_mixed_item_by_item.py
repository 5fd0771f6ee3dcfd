"""The collator mixes each picture by a share of its own, and the class is drawn by weights: neither
depends on the batch.

free
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
from torch.utils.data import DataLoader, Dataset

import numpy as np
from torch.utils.data import TensorDataset, WeightedRandomSampler, default_collate

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Corrupt:
    def __init__(self, alpha):
        self.alpha = alpha

    def __call__(self, batch):
        x, y = default_collate(batch)
        share = torch.from_numpy(np.random.beta(self.alpha, 1.0, size=len(x))).float()[:, None]
        return (1 - share) * x + share * torch.randn_like(x), y


np.random.seed(0)
labels = torch.arange(20000) % 10
data = TensorDataset(torch.randn(20000, 16), labels)
sampler = WeightedRandomSampler(1.0 + labels.double(), len(data))
loader = DataLoader(data, c["batch_size"], sampler=sampler, collate_fn=Corrupt(0.3))
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
updates = samples = 0
for epoch in range(300):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.cross_entropy(net(x), y) / c["accumulation"]).backward()
        samples += len(x)
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 100:
                print("updates", updates, "samples", samples, "shares an item")
                raise SystemExit
