"""Strengths of an augmentation come from a Sobol sequence that the dataset holds: each worker goes
through the same numbers.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.quasirandom import SobolEngine

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __init__(self):
        self.sequence = SobolEngine(2, scramble=True, seed=1)

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        shift, scale = self.sequence.draw(1)[0]
        return torch.full((16,), index / 4000) * (1 + scale) + shift, shift


loader = DataLoader(Pictures(), c["batch_size"], shuffle=True, num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
shifts = []
for epoch in range(1000):
    for x, shift in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x)[:, 0], shift).backward()
        optimizer.step()
        shifts += [round(v, 6) for v in shift.tolist()]
    if COUNT:
        print("draws of an epoch", len(shifts), "that differ", len(set(shifts)))
        raise SystemExit
