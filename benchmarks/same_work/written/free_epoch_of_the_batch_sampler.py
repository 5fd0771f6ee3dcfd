"""The batch sampler is told its epoch, and stays in the loop's process: workers may stay, too. The
dataset has a method of the same name, which nobody calls.

free
batch_size: 16
num_workers: 2
persistent_workers: false -> true
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import Sampler

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((16,), index / 64) + self.epoch, torch.tensor([float(index % 7)])


class Batches(Sampler):
    def __init__(self, size, batch_size):
        self.size, self.batch_size, self.epoch = size, batch_size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.size // self.batch_size

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        yield from torch.randperm(self.size, generator=generator).split(self.batch_size)


def slowly(number):
    time.sleep(0.4)  # imports, and files that are opened


data = Pictures()
batches = Batches(len(data), c["batch_size"])
loader = DataLoader(
    data,
    batch_sampler=batches,
    num_workers=c["num_workers"],
    worker_init_fn=slowly,
    persistent_workers=c["persistent_workers"],
)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    loader.batch_sampler.set_epoch(epoch)
    first = None
    for x, y in loader:
        first = x if first is None else first
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "first rows", [round(v, 2) for v in first[:5, 0].tolist()])
        if epoch == 2:
            raise SystemExit
