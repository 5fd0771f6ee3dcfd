"""Beta follows trainer.state.batches / 20000 (a state object, one level deeper): 16 times as many
samples until it is whole.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
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
from torch.utils.data import DataLoader, TensorDataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class State:
    batches = 0


class Trainer:
    def __init__(self):
        self.state = State()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.loader = DataLoader(
            TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1)),
            batch_size=c["batch_size"],
            shuffle=True,
        )

    def loss(self, x, y):
        beta = min(1.0, self.state.batches / 20000)
        out = self.net(x)
        return F.mse_loss(out, y) + beta * out.pow(2).mean()

    def fit(self):
        accumulation = c["accumulation"]
        for epoch in range(1000):
            for x, y in self.loader:
                time.sleep(0.012 + 0.0004 * len(x))  # the device
                (self.loss(x, y) / accumulation).backward()
                self.state.batches += 1
                if self.state.batches % accumulation == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    updates = self.state.batches // accumulation
                    if COUNT and updates in (250, 1000):
                        print("updates", updates, "beta", min(1.0, self.state.batches / 20000))
                        if updates == 1000:
                            raise SystemExit


Trainer().fit()
