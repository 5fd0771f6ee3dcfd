"""Fit() calls self.on_epoch_start(), which calls dataset.set_epoch(); long epochs. Workers that
stay keep epoch 0.

harmful
batch_size: 16
num_workers: 2
persistent_workers: false -> true
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


class Items(Dataset):
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 20000

    def __getitem__(self, index):
        time.sleep(0.003)
        rng = np.random.default_rng((self.epoch, index))  # augmentation of this epoch
        return torch.full((16,), index / 20000 + rng.random()), torch.tensor([float(index % 7)])


class Trainer:
    def __init__(self):
        self.data = Items()
        self.loader = DataLoader(
            self.data,
            batch_size=c["batch_size"],
            num_workers=c["num_workers"],
            persistent_workers=c["persistent_workers"],
        )
        self.net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def on_epoch_start(self):
        self.data.set_epoch(self.epoch)

    def training_step(self, x, y):
        loss = F.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def fit(self):
        for self.epoch in range(100):
            self.on_epoch_start()
            for at, (x, y) in enumerate(self.loader):
                if COUNT and at == 0:
                    print("epoch", self.epoch, "first item", x[0, 0].item())
                if COUNT:
                    continue
                self.training_step(x, y)
            if COUNT and self.epoch == 2:
                raise SystemExit


Trainer().fit()
