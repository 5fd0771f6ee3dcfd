"""The centre that outputs are held against moves a tenth towards each batch: 16 times an update over
16 batches, and once over one larger batch.

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


class CentreLoss:
    """Pulls the features of a class to its centre, which follows them."""

    def __init__(self, width, pace=0.1):
        self.centre, self.pace = torch.zeros(width), pace
        self.moves = 0

    def __call__(self, features):
        loss = (features - self.centre).square().sum(1).mean()
        with torch.no_grad():
            self.centre.lerp_(features.mean(0), self.pace)
        if COUNT:
            self.moves += 1
        return loss


data = TensorDataset(torch.randn(20000, 16), torch.randint(0, 10, (20000,)))
loader = DataLoader(data, c["batch_size"], shuffle=True)
body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 8))
head = nn.Linear(8, 10)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.02)
pull, updates = CentreLoss(8), 0
for epoch in range(300):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        features = body(x)
        loss = F.cross_entropy(head(features), y) + 0.01 * pull(features)
        (loss / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 4:
                print("updates", updates, "moves", pull.moves)
                raise SystemExit
