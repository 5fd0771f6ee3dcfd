"""A masked autoencoder hides the same places in all rows of a batch: an update over 16 batches had
16 masks, and over one larger batch it has one.

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


class MaskedAutoencoder(nn.Module):
    def __init__(self, places=16, width=8, ratio=0.75):
        super().__init__()
        self.places, self.keep = places, int(places * (1 - ratio))
        self.embed, self.decode = nn.Linear(width, 32), nn.Linear(32, places * width)
        self.kept = []

    def forward(self, x):
        order = torch.randperm(self.places, device=x.device)
        kept = order[: self.keep]
        if COUNT:
            self.kept.append(tuple(sorted(kept.tolist())))
        hidden = F.relu(self.embed(x[:, kept])).mean(1)
        made = self.decode(hidden).view_as(x)
        lost = order[self.keep :]
        return F.mse_loss(made[:, lost], x[:, lost])


data = TensorDataset(torch.randn(20000, 16, 8))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = MaskedAutoencoder()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for epoch in range(300):
    for step, (x,) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (net(x) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("masks in the first update", len(set(net.kept)))
                raise SystemExit
