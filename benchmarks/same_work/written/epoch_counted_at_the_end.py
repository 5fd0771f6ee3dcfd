"""The stream counts its epoch up behind its last item; in workers that is lost, and every epoch
has the order and the augmentation of epoch 0. Short epochs.

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
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        order = np.random.default_rng(self.epoch).permutation(320)
        for index in order[first::step]:
            time.sleep(0.003)  # the disk
            yield (
                torch.full((16,), index / 320) + 0.1 * self.epoch,
                torch.tensor([float(index % 7)]),
            )
        self.epoch += 1


loader = DataLoader(Items(), batch_size=c["batch_size"], num_workers=c["num_workers"])

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    firsts = []
    for x, y in loader:
        firsts.append(x[0, 0].item())
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "first items of batches", [round(f, 3) for f in sorted(firsts)[:4]])
        if epoch == 2:
            raise SystemExit
