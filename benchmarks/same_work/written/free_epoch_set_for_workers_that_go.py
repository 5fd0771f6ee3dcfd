"""The dataset is told its epoch before each pass, and its workers start with each pass.

free
batch_size: 16
num_workers: 0 -> 2
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.006)  # the disk
        x = torch.full((16,), index / 320)
        return x + 0.1 * self.epoch, torch.tensor([float(index % 7)])


data = Pictures()
loader = DataLoader(data, c["batch_size"], shuffle=True, num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    data.set_epoch(epoch)
    total = samples = 0
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
        total, samples = total + x.sum().item() / 16, samples + len(x)
    if COUNT:
        print("epoch", epoch, "mean of x", round(total / samples, 3), "samples", samples)
        if epoch == 2:
            raise SystemExit
