"""A callback of the trainer sets the backbone free after 600 batches: after 1,200 items, and with
larger batches after 19,200.

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

from torch.utils.data import TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Callback:
    def on_train_batch_end(self, trainer):
        pass

    def on_epoch_end(self, trainer):
        pass


class Unfreeze(Callback):
    def __init__(self, after):
        self.after, self.batches = after, 0

    def on_train_batch_end(self, trainer):
        self.batches += 1
        if self.batches == self.after:
            trainer.net.backbone.requires_grad_(True)


class History(Callback):
    def __init__(self):
        self.epochs = []

    def on_epoch_end(self, trainer):
        self.epochs.append(trainer.loss.item())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(16, 32).requires_grad_(False)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.head(self.backbone(x))


class Trainer:
    def __init__(self, net, callbacks, accumulate):
        self.net, self.callbacks, self.accumulate = net, callbacks, accumulate
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def call(self, hook):
        for callback in self.callbacks:
            getattr(callback, hook)(self)

    def fit(self, loader, epochs):
        updates = 0
        for _ in range(epochs):
            for number, (x, y) in enumerate(loader, 1):
                time.sleep(0.012 + 0.0004 * len(x))  # the device
                self.loss = F.mse_loss(self.net(x), y)
                (self.loss / self.accumulate).backward()
                if number % self.accumulate == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    updates += 1
                self.call("on_train_batch_end")
                if COUNT and self.net.backbone.weight.requires_grad:
                    print("backbone is free after updates", updates)
                    raise SystemExit
            self.call("on_epoch_end")


data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True)
Trainer(Net(), [History(), Unfreeze(600)], c["accumulation"]).fit(loader, 300)
