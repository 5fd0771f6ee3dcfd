"""Opt.epoch, an argparse.Namespace held by the dataset, is set before each epoch; workers that
stay keep epoch 0. Short epochs.

harmful
batch_size: 16
num_workers: 2
persistent_workers: false -> true
"""

import argparse
import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

opt = argparse.Namespace(**c, epoch=0)


class Items(Dataset):
    def __init__(self, opt):
        self.opt = opt

    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((16,), index / 320) + self.opt.epoch, torch.tensor([float(index % 7)])


loader = DataLoader(
    Items(opt),
    batch_size=c["batch_size"],
    shuffle=True,
    num_workers=c["num_workers"],
    persistent_workers=c["persistent_workers"],
)

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for opt.epoch in range(1000):
    total = 0.0
    for x, y in loader:
        total += x.mean().item()
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", opt.epoch, "mean of x", total / len(loader))
        if opt.epoch == 3:
            raise SystemExit
