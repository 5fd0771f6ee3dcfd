"""N_iter times batch_size pictures are made (txt2img --n_iter --n_samples): 8 times as many
pictures, and the run takes longer.

harmful
batch_size: 4 -> 32
n_iter: 5000
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

net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)).eval()
made = 0
with torch.no_grad():
    for n in range(c["n_iter"]):
        x = torch.randn(c["batch_size"], 16)
        for t in range(4):
            time.sleep(0.003)  # the device
            x = x - 0.1 * net(x)
        made += len(x)
print("pictures", made)
