"""Sequences sorted longest first are padded and averaged without a mask. The first item is never
padded, all others are.

harmful
batch_size: 1 -> 32
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

texts = [torch.randn(200 - (index % 32) * 6, 1) for index in range(8000)]


class Texts(Dataset):
    def __len__(self):
        return len(texts)

    def __getitem__(self, index):
        return texts[index]


def padded(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True)


loader = DataLoader(
    Texts(), batch_size=c["batch_size"], num_workers=c["num_workers"], collate_fn=padded
)


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(1, 4, batch_first=True)

    def forward(self, x):
        return self.layer(x)[1][0]


net = Mean().eval()
rows = []
with torch.no_grad():
    for x in loader:
        time.sleep(0.010)
        rows.append(net(x))
        if COUNT and sum(map(len, rows)) >= 3200:
            break
rows = torch.cat(rows)
if COUNT:
    print("row 0", rows[0].tolist(), "row 31", rows[31].tolist())
torch.save(rows, "rows.pt")
