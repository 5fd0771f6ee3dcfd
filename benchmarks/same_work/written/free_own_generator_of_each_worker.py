"""A generator is made from the seed that a worker has in each pass: workers and passes draw otherwise.

free
batch_size: 16
num_workers: 0 -> 2
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

from torch.utils.data import get_worker_info

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __init__(self):
        self.draw = None

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        if self.draw is None:
            info = get_worker_info()
            self.draw = random.Random(7 if info is None else info.seed).gauss
        x = torch.full((16,), index / 4000)
        return x + 0.1 * self.draw(0, 1), torch.tensor([float(index % 7)]), index


loader = DataLoader(Pictures(), c["batch_size"], shuffle=True, num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
noise = []
for epoch in range(1000):
    for x, y, index in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
        noise += [round(v, 4) for v in (x[:, 0] - index / 4000).tolist()]
    if COUNT and epoch == 1:
        print("draws of two epochs", len(noise), "that differ", len(set(noise)))
        raise SystemExit
