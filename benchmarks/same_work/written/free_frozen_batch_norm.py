"""The backbone normalises by kept statistics, as detectors do: nothing depends on the batch.

free
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


class FrozenBatchNorm2d(nn.Module):
    """BatchNorm whose statistics and weights stay as they are."""

    def __init__(self, n):
        super().__init__()
        self.register_buffer("weight", torch.ones(n))
        self.register_buffer("bias", torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))

    def forward(self, x):
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


data = TensorDataset(torch.randn(20000, 1, 8, 8), torch.randint(0, 10, (20000,)))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3), FrozenBatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
updates = 0
for epoch in range(300):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.cross_entropy(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 50:
                print("weights after 50 updates", sum(p.sum().item() for p in net.parameters()))
                raise SystemExit
