"""The batch sampler draws a size of the pictures for each batch: an update over 16 batches saw
several sizes, and over one larger batch it sees one.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import random
import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import BatchSampler, RandomSampler

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __len__(self):
        return 20000

    def __getitem__(self, place):
        index, size = place
        return torch.full((1, size, size), index / 20000), index % 10


class MultiScaleBatchSampler(BatchSampler):
    def __init__(self, sampler, batch_size, drop_last, sizes=(8, 12, 16, 20, 24)):
        super().__init__(sampler, batch_size, drop_last)
        self.sizes = sizes

    def __iter__(self):
        batch = []
        size = random.choice(self.sizes)
        for index in self.sampler:
            batch.append((index, size))
            if len(batch) == self.batch_size:
                yield batch
                batch = []
                size = random.choice(self.sizes)
        if batch and not self.drop_last:
            yield batch


random.seed(0)
data = Pictures()
batches = MultiScaleBatchSampler(RandomSampler(data), c["batch_size"], drop_last=True)
loader = DataLoader(data, batch_sampler=batches)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
sizes = []
for epoch in range(1000):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.cross_entropy(net(x), y) / c["accumulation"]).backward()
        sizes.append(x.shape[-1])
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("sizes in the first update", sorted(set(sizes)))
                raise SystemExit
