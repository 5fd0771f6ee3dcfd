"""A Gumbel layer cools down at each forward of a training, by a plain float: 16 steps of cooling an
update become one.

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


class Choice(nn.Module):
    def __init__(self, width, choices):
        super().__init__()
        self.logits = nn.Linear(width, choices)
        self.values = nn.Linear(choices, width)
        self.temperature = 2.0

    def forward(self, x):
        if self.training:
            self.temperature = max(0.5, self.temperature * 0.9998)
        picked = F.gumbel_softmax(self.logits(x), tau=self.temperature)
        return self.values(picked)


net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), Choice(32, 12), nn.Linear(32, 1))
data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
updates = 0
for epoch in range(100):
    for number, (x, y) in enumerate(loader, start=1):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        if number % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 250:
                print("updates", updates, "temperature", net[2].temperature)
                raise SystemExit
