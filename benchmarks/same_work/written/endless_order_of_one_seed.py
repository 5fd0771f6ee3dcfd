"""An endless stream draws its order from a generator made in __iter__; each worker has the same
order, and the augmentation hides it.

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
from torch.utils.data import DataLoader, IterableDataset

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
    def __iter__(self):
        order = random.Random(0)
        while True:
            index = order.randrange(100000)
            time.sleep(0.003)  # the disk
            yield (
                torch.full((16,), index / 100000) + 0.01 * torch.randn(16),
                torch.tensor([float(index)]) + 0.01 * torch.randn(1),
            )


loader = DataLoader(Items(), batch_size=c["batch_size"], num_workers=c["num_workers"])

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

seen = []
for x, y in loader:
    if COUNT:
        seen += y.round().flatten().tolist()
        if len(seen) >= 1600:
            print("items", len(seen), "different", len(set(seen)))
            raise SystemExit
        continue
    y = y / 100000
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
