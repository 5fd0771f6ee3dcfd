"""The level of a curriculum stands in an environment variable that each epoch sets: workers that stay
keep the first.

harmful
batch_size: 16
num_workers: 2
persistent_workers: false -> true
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


class Items(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        level = int(os.environ["CURRICULUM_LEVEL"])
        x = torch.full((16,), index / 320)
        x[: 16 - min(16, level)] = 0.0  # more of the item is shown in each epoch
        return x, torch.tensor([float(index % 7)])


loader = DataLoader(
    Items(),
    batch_size=c["batch_size"],
    num_workers=c["num_workers"],
    persistent_workers=c["persistent_workers"],
    shuffle=True,
    worker_init_fn=lambda worker: time.sleep(0.3),  # imports of a library
)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for epoch in range(1000):
    os.environ["CURRICULUM_LEVEL"] = str(1 + epoch)
    shown = 0
    for x, y in loader:
        shown = max(shown, int((x != 0).sum(1).max()))
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "figures shown of an item", shown)
        if epoch == 3:
            raise SystemExit
