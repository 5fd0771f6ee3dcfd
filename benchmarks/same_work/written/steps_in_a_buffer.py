"""The quantizer counts its calls in a buffer, and its temperature falls by them: 16 times an update
over 16 batches, and once over one larger batch.

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


class GumbelQuantizer(nn.Module):
    def __init__(self, width, codes):
        super().__init__()
        self.logits, self.table = nn.Linear(width, codes), nn.Linear(codes, width)
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.long))

    def temperature(self):
        return max(0.5, 2.0 * 0.9995 ** self.num_updates.item())

    def forward(self, x):
        if self.training:
            self.num_updates += 1
        return self.table(F.gumbel_softmax(self.logits(x), tau=self.temperature()))


data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), GumbelQuantizer(32, 16), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
updates = 0
for epoch in range(300):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 100:
                print("temperature at update 100", round(net[2].temperature(), 3))
                raise SystemExit
