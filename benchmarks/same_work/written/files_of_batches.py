"""A file a batch, named by its number (embeddings/00000.pt): file n holds other items, and there
are a sixteenth of them.

harmful
batch_size: 4 -> 64
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

data = TensorDataset(torch.randn(20000, 16))
loader = DataLoader(data, batch_size=c["batch_size"], num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
os.makedirs("embeddings", exist_ok=True)
with torch.no_grad():
    for number, (x,) in enumerate(loader):
        time.sleep(0.010)  # the device
        torch.save(net(x), f"embeddings/{number:05d}.pt")
        if COUNT and number == 60:
            break
if COUNT:
    print(
        "file 00010",
        tuple(torch.load("embeddings/00010.pt").shape),
        torch.load("embeddings/00010.pt")[0].tolist(),
        "files of the run",
        -(-20000 // c["batch_size"]),
    )
