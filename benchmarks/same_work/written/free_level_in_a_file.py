"""The level of a curriculum stands in a file that each epoch writes and each item reads.

free
batch_size: 16
num_workers: 0 -> 2
"""

import json
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


def set_level(level):
    with open("curriculum.new", "w") as file:
        json.dump({"level": level}, file)
    os.replace("curriculum.new", "curriculum.json")


class Items(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        with open("curriculum.json") as file:
            level = json.load(file)["level"]
        x = torch.full((16,), (1 + index) / 1600)
        x[min(16, level) :] = 0.0
        return x, torch.tensor([float(index % 7)])


loader = DataLoader(Items(), batch_size=c["batch_size"], num_workers=c["num_workers"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    set_level(4 + epoch)
    shown = 0
    for x, y in loader:
        shown = max(shown, int((x != 0).sum(1).max()))
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "figures shown of an item", shown)
        if epoch == 2:
            break
