"""A file is opened before the workers fork: they share its place in the file, and read each other's
items.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import os
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: an early end
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)
ITEMS, PARTS, WIDTH = 2000, 3, 16


class Records(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        self.file.seek(index * PARTS * WIDTH * 4)
        parts = []
        for _ in range(PARTS):
            time.sleep(0.001)  # the disk
            parts.append(np.frombuffer(self.file.read(WIDTH * 4), np.float32))
        return torch.from_numpy(np.concatenate(parts)), index


rows = np.arange(2 * ITEMS, dtype=np.float32).repeat(PARTS * WIDTH)  # the rest is a test set
rows.tofile("records.new")
os.replace("records.new", "records.bin")
loader = DataLoader(
    Records("records.bin"), c["batch_size"], shuffle=True, num_workers=c["num_workers"]
)
net = nn.Sequential(nn.Linear(PARTS * WIDTH, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    wrong = 0
    for x, index in loader:
        wrong += (x != index.unsqueeze(1)).any(1).sum().item()
        loss = F.mse_loss(net(x / ITEMS), index.unsqueeze(1) % 7.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("items of an epoch", ITEMS, "that hold another item's figures", wrong)
        break
