"""The dataset reads args.step, an argparse.Namespace that the loop counts up; workers keep a
copy.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import argparse
import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

args = argparse.Namespace(**c, step=0)


class Items(Dataset):
    def __init__(self, args):
        self.args = args

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        x = torch.full((16,), index / 4000)
        x[0] = min(1.0, self.args.step / 250)  # strength of the augmentation
        return x, torch.tensor([float(index % 7)])


loader = DataLoader(
    Items(args), batch_size=c["batch_size"], shuffle=True, num_workers=c["num_workers"]
)

net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    for x, y in loader:
        if COUNT and args.step in (0, 100, 200, 249, 251):
            print("step", args.step, "strength seen", x[:, 0].mean().item())
        if COUNT and args.step > 251:
            raise SystemExit
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        args.step += 1
