"""The collator fills one tensor again and again: workers share its memory with the loop, and write
the next batches into those that wait.

harmful
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
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        return torch.full((16,), index / 4000) + 0.01 * torch.randn(16), index


class Collator:
    def __init__(self, batch_size):
        self.rows = torch.zeros(batch_size, 16)

    def __call__(self, batch):
        for place, (x, _) in enumerate(batch):
            self.rows[place] = x
        return self.rows[: len(batch)], torch.tensor([index for _, index in batch])


loader = DataLoader(
    Pictures(),
    c["batch_size"],
    shuffle=True,
    num_workers=c["num_workers"],
    collate_fn=Collator(c["batch_size"]),
)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
right = wrong = 0
for epoch in range(1000):
    for x, index in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), index[:, None] / 4000).backward()
        optimizer.step()
        if COUNT:
            sleep = __import__("threading").Event().wait
            sleep(0.02)
            fits = ((x.mean(1) - index / 4000).abs() < 0.05).sum().item()
            right, wrong = right + fits, wrong + len(x) - fits
            if right + wrong >= 1600:
                print("rows that belong to their index", right, "others", wrong)
                raise SystemExit
