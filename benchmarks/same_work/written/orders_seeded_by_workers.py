"""The stream asks for its worker's number and their count to seed its order, not to share it:
each worker yields all items. Long epochs.

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
        self.epoch = 0

    def __iter__(self):
        worker = get_worker_info()
        seed = self.epoch if worker is None else self.epoch * worker.num_workers + worker.id
        order = np.random.default_rng(seed).permutation(40000)
        for index in order:
            time.sleep(0.003)  # the disk
            yield torch.full((16,), index / 40000), torch.tensor([float(index)])


loader = DataLoader(Items(), batch_size=c["batch_size"], num_workers=c["num_workers"])

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    seen = []
    for x, y in loader:
        if COUNT:
            seen += y.flatten().tolist()
            continue
        y = y / 40000
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("items of the epoch", len(seen), "different", len(set(seen)))
        raise SystemExit
