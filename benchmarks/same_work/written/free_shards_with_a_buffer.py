"""Shards of a stream go to workers, which shuffle in a buffer of their own and make batches by
themselves: all items come, once each.

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

from torch.utils.data import IterableDataset, default_collate, get_worker_info

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


def split_by_worker(shards):
    info = get_worker_info()
    return shards if info is None else shards[info.id :: info.num_workers]


def read(shards, size=400):
    for shard in shards:
        for at in range(size):
            time.sleep(0.003)  # the disk
            yield shard * size + at


def shuffled(samples, buffer):
    held = []
    for sample in samples:
        held.append(sample)
        if len(held) >= buffer:
            yield held.pop(random.randrange(len(held)))
    random.shuffle(held)
    yield from held


def batched(samples, size):
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield default_collate(batch)
            batch = []
    if batch:
        yield default_collate(batch)


class WebDataset(IterableDataset):
    def __init__(self, shards, batch_size):
        self.shards, self.batch_size = shards, batch_size

    def decode(self, number):
        return torch.full((16,), number / 4000), torch.tensor([float(number % 7)]), number

    def __iter__(self):
        samples = shuffled(read(split_by_worker(self.shards)), 64)
        return batched(map(self.decode, samples), self.batch_size)


data = WebDataset(list(range(10)), c["batch_size"])
loader = DataLoader(data, batch_size=None, num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    numbers = []
    for x, y, number in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
        numbers += number.tolist()
    if COUNT:
        print("an epoch: items", len(numbers), "that differ", len(set(numbers)))
        raise SystemExit
