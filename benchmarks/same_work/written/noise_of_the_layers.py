"""Layers draw the noise of their weights once a forward: an update over 16 batches had 16 draws of
it, and over one larger batch it has one.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import math
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

draws = []


class NoisyLinear(nn.Module):
    """Factorised noise on the weights (Fortunato et al.)."""

    def __init__(self, inputs, outputs, sigma=0.5):
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        bound = 1 / math.sqrt(inputs)
        self.mean = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.spread = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias = nn.Parameter(torch.zeros(outputs))

    @staticmethod
    def scale_noise(size):
        x = torch.randn(size)
        return x.sign().mul_(x.abs().sqrt_())

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.mean, self.bias)
        noise = self.scale_noise(self.outputs).outer(self.scale_noise(self.inputs))
        if COUNT:
            draws.append(noise[0, 0].item())
        return F.linear(x, self.mean + self.spread * noise, self.bias)


data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), NoisyLinear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(300):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.smooth_l1_loss(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("draws of the weights' noise in the first update", len(set(draws)))
                raise SystemExit
