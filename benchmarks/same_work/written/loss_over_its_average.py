"""Losses of two tasks are divided by running averages that each batch moves: 16 moves an update
become one.

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
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Average:
    def __init__(self, keep=0.999):
        self.keep, self.value, self.moves = keep, 1.0, 0

    def __call__(self, loss):
        self.value = self.keep * self.value + (1 - self.keep) * loss.item()
        self.moves += 1
        return loss / self.value


body = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU())
heads = nn.ModuleDict({"depth": nn.Linear(32, 1), "label": nn.Linear(32, 10)})
scales = {"depth": Average(), "label": Average()}
data = TensorDataset(torch.randn(20000, 16), 30 * torch.randn(20000, 1), torch.arange(20000) % 10)
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
optimizer = torch.optim.SGD([*body.parameters(), *heads.parameters()], lr=0.01)
updates = 0
for epoch in range(100):
    for number, (x, depth, label) in enumerate(loader, start=1):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        found = body(x)
        losses = {
            "depth": F.mse_loss(heads["depth"](found), depth),
            "label": F.cross_entropy(heads["label"](found), label),
        }
        total = sum(scales[name](loss) for name, loss in losses.items())
        (total / c["accumulation"]).backward()
        if number % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 50:
                depth = scales["depth"]
                print("updates", updates, "moves", depth.moves, "average", depth.value)
                raise SystemExit
