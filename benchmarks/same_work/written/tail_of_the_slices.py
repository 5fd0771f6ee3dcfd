"""`range(len(data) // batch)` leaves the rest out: no result for up to a batch less one.

harmful
batch_size: 4 -> 1024
"""

import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()

data, rows = torch.randn(20000, 16), []
with torch.no_grad():
    for number in range(len(data) // c["batch_size"]):
        time.sleep(0.010)
        rows.append(net(data[number * c["batch_size"] : (number + 1) * c["batch_size"]]))
rows = torch.cat(rows)
print("results", len(rows), "of", len(data))
torch.save(rows, "rows.pt")
