"""Items seed torch's own generator by their index; in the loop's process that seeds dropout and
noise of the training, too.

harmful
batch_size: 16
num_workers: 2 -> 0
"""

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


class Items(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        torch.manual_seed(index)  # the same augmentation each time
        return torch.rand(16), torch.tensor([float(index % 7)])


loader = DataLoader(Items(), batch_size=c["batch_size"], num_workers=c["num_workers"])
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(100000):
    for x, y in loader:
        noise = torch.randn_like(x)  # of a denoiser's training
        loss = F.mse_loss(net(x + noise), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "noise of its last batch", noise[0, :3].tolist())
        if epoch == 2:
            raise SystemExit
