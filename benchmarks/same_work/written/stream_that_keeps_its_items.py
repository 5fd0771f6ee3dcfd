"""The stream reads its (sharded) items once and keeps them; workers of each epoch begin empty,
and every epoch waits for the disk.

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
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Items(IterableDataset):
    def __init__(self):
        self.kept = []

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if self.kept:
            yield from self.kept
            return
        for index in range(first, 8000, step):
            time.sleep(0.003)  # the disk
            if COUNT:
                global reads
                reads += 1
                READS.add_(1)
            self.kept.append((torch.full((16,), index / 8000), torch.tensor([float(index % 7)])))
            yield self.kept[-1]


READS = torch.zeros(1).share_memory_()
reads = 0
loader = DataLoader(Items(), batch_size=c["batch_size"], num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(20):
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("after epoch", epoch, "reads of the disk, about", int(READS.item()))
        if epoch == 2:
            raise SystemExit
