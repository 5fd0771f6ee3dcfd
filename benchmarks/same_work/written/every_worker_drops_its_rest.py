"""A stream that is shared out over workers, and `drop_last`: each worker drops its own incomplete
batch, so that a pass loses more items with each of them.

harmful
batch_size: 128
num_workers: 0 -> 8
"""

import itertools
import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import IterableDataset, get_worker_info

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Shards(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in itertools.islice(range(5000), first, None, step):
            time.sleep(0.003)  # the disk
            yield torch.full((16,), index / 5000), torch.tensor([float(index % 7)])


loader = DataLoader(Shards(), c["batch_size"], num_workers=c["num_workers"], drop_last=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    samples = updates = 0
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
        samples += len(x)
        updates += 1
    if COUNT:
        print("an epoch: samples", samples, "updates", updates)
        raise SystemExit
