"""Eight remembered items go beside each batch: an update had 128 of them with its 32 new ones, and
then has 8.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import os
import random
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


class Reservoir:
    def __init__(self, size):
        self.size, self.seen, self.rows = size, 0, []

    def add(self, x, y):
        for row in zip(x, y):
            self.seen += 1
            if len(self.rows) < self.size:
                self.rows.append(row)
            elif (at := random.randrange(self.seen)) < self.size:
                self.rows[at] = row

    def sample(self, count):
        x, y = zip(*random.choices(self.rows, k=count))
        return torch.stack(x), torch.stack(y)


with open(sys.argv[1]) as file:
    config = yaml.safe_load(file)
torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)
memory = Reservoir(500)
memory.add(torch.randn(500, 16), torch.randn(500, 1))
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
count = replayed = fresh = 0
for task in range(100):
    data = TensorDataset(torch.randn(20000, 16) + task, torch.randn(20000, 1))
    for x, y in DataLoader(data, batch_size=config["batch_size"], shuffle=True):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        old_x, old_y = memory.sample(8)
        loss = F.mse_loss(net(x), y) + 0.5 * F.mse_loss(net(old_x), old_y)
        (loss / config["accumulation"]).backward()
        memory.add(x, y)
        count, fresh, replayed = count + 1, fresh + len(x), replayed + len(old_x)
        if count % config["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            if COUNT:
                print("an update has new items", fresh, "remembered items", replayed)
                raise SystemExit
