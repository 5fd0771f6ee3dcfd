"""The score is taken over the first max_batches batches (--limit of the usual scripts): another
part of the data, 64 times as many items.

harmful
batch_size: 4 -> 64
num_workers: 0
limit_batches: 2000
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

data = TensorDataset(torch.randn(200000, 16), torch.randint(4, (200000,)))
loader = DataLoader(data, batch_size=c["batch_size"], num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
right = total = 0
with torch.no_grad():
    for number, (x, y) in enumerate(loader):
        if number >= c["limit_batches"]:
            break
        time.sleep(0.010)  # the device
        right += (net(x).argmax(1) == y).sum().item()
        total += len(x)
print(f"accuracy {right / total:.4f} of {total}")
