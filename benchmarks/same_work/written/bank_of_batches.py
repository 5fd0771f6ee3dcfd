"""Items are held against a bank of the last 64 batches: 128 other items, and then 2048.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import os
import sys
import time
from collections import deque

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


class Bank:
    def __init__(self, batches):
        self.features, self.labels = deque(maxlen=batches), deque(maxlen=batches)

    def push(self, features, labels):
        self.features.append(features.detach())
        self.labels.append(labels)

    def read(self):
        return torch.cat(list(self.features)), torch.cat(list(self.labels))


def loss_against(bank, features, labels):
    others, their_labels = bank.read()
    near = features @ others.T / 0.1
    same = labels.unsqueeze(1) == their_labels
    return -(near.log_softmax(1).masked_fill(~same, 0).sum(1) / same.sum(1).clamp(min=1)).mean()


net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8))
data = TensorDataset(torch.randn(20000, 16), torch.arange(20000) % 10)
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
bank, updates = Bank(64), 0
for epoch in range(100):
    for number, (x, y) in enumerate(loader, start=1):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        features = F.normalize(net(x), dim=1)
        if not bank.labels:
            bank.push(features, y)
        (loss_against(bank, features, y) / c["accumulation"]).backward()
        bank.push(features, y)
        if number % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 100:
                print("updates", updates, "items held against", len(bank.read()[1]))
                raise SystemExit
