"""An epoch is so many batches of drawn items, and the rate falls by epochs: an epoch has 16 times
as many items and updates.

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
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import TensorDataset, WeightedRandomSampler

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)

BATCHES = 800
labels = (torch.arange(20000) % 10 == 0).long()
data = TensorDataset(torch.randn(20000, 16), labels)
weights = torch.where(labels == 1, 0.9, 0.1)
sampler = WeightedRandomSampler(weights, num_samples=BATCHES * c["batch_size"], replacement=True)
loader = DataLoader(data, c["batch_size"], sampler=sampler)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 45])
updates = samples = 0
for epoch in range(60):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.cross_entropy(net(x), y) / c["accumulation"]).backward()
        samples += len(x)
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    schedule.step()
    if COUNT and epoch == 1:
        print("two epochs: samples", samples, "updates", updates)
        raise SystemExit
