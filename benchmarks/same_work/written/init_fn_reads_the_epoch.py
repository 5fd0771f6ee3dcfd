"""The workers' init function reads the epoch and sets it on the dataset: workers that stay are never
asked again.

harmful
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

from torch.multiprocessing import Value
from torch.utils.data import get_worker_info

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)

epoch_now = Value("i", 0)


def init(number):
    get_worker_info().dataset.strength = 0.1 * epoch_now.value


class Pictures(Dataset):
    strength = 0.0

    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.full((16,), index / 64)
        return x + self.strength * torch.randn(16), torch.tensor([float(index % 7)])


loader = DataLoader(
    Pictures(),
    c["batch_size"],
    shuffle=True,
    num_workers=c["num_workers"],
    persistent_workers=c["persistent_workers"],
    worker_init_fn=init,
)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    epoch_now.value = epoch
    spreads = []
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
        spreads.append(x.std(1).mean().item())
    if COUNT:
        print("epoch", epoch, "spread", round(sum(spreads) / len(spreads), 2))
        if epoch == 3:
            raise SystemExit
