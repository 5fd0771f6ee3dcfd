"""Each batch is of one language, and languages take turns: an update over 16 batches was over all
eight, and over one larger batch it is over one.

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

from torch.utils.data import ConcatDataset, Sampler, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class RoundRobinBatchSampler(Sampler):
    def __init__(self, data, batch_size):
        self.data, self.batch_size = data, batch_size

    def __len__(self):
        return sum(len(part) // self.batch_size for part in self.data.datasets)

    def __iter__(self):
        start, orders = 0, []
        for part in self.data.datasets:
            orders.append(iter((torch.randperm(len(part)) + start).tolist()))
            start += len(part)
        while orders:
            for order in list(orders):
                batch = [index for index, _ in zip(order, range(self.batch_size))]
                if len(batch) < self.batch_size:
                    orders.remove(order)
                else:
                    yield batch


parts = [
    TensorDataset(torch.randn(2560, 16) + k, torch.randn(2560, 1), torch.full((2560,), k))
    for k in range(8)
]
data = ConcatDataset(parts)
loader = DataLoader(data, batch_sampler=RoundRobinBatchSampler(data, c["batch_size"]))
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
languages = []
for epoch in range(1000):
    for step, (x, y, language) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        languages += language.tolist()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("languages in the first update", sorted(set(languages)))
                raise SystemExit
