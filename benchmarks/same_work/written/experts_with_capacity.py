"""Experts take capacity_factor * tokens / experts tokens, the first ones of a batch (Switch,
GShard): the first item always keeps its place, later ones lose theirs by the batch.

harmful
batch_size: 8 -> 64
num_workers: 2
"""

import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
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


class Experts(nn.Module):
    def __init__(self, width=16, experts=4, factor=1.0):
        super().__init__()
        self.gate, self.factor = nn.Linear(width, experts), factor
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        chosen = self.gate(flat).argmax(1)
        room = int(self.factor * len(flat) / len(self.experts))
        out = flat.clone()
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().flatten()[:room]
            out[mine] = out[mine] + 2 * expert(flat[mine])
        return out.view_as(x).mean(1)


data = TensorDataset(torch.randn(8000, 5, 16) + 0.5 * torch.randn(8000, 1, 16))
loader = DataLoader(data, batch_size=c["batch_size"], num_workers=c["num_workers"])
net = Experts().eval()
rows = []
with torch.no_grad():
    for (x,) in loader:
        time.sleep(0.010)  # the device
        rows.append(net(x))
        if COUNT and sum(map(len, rows)) >= 640:
            break
rows = torch.cat(rows)
if COUNT:
    torch.save(rows[:640], f"/tmp/experts-{c['batch_size']}.pt")
if COUNT and c["batch_size"] == 64:
    other = torch.load("/tmp/experts-8.pt")
    apart = (rows[:640] - other).abs().amax(1)
    print(
        "items whose result differs by more than 0.05:",
        (apart > 0.05).sum().item(),
        "of 640; of the first item",
        apart[0].item(),
        "largest",
        apart.max().item(),
    )
torch.save(rows, "rows.pt")
