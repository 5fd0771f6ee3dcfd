"""What was decoded lies in tensors of shared memory: each worker fills them for all, and for the next
epoch.

free
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


class Shared(Dataset):
    def __init__(self, count):
        self.decoded = torch.zeros(count, 16).share_memory_()
        self.present = torch.zeros(count, dtype=torch.bool).share_memory_()

    def __len__(self):
        return len(self.present)

    def __getitem__(self, index):
        if not self.present[index]:
            time.sleep(0.004)  # the decoder
            self.decoded[index] = index / len(self)
            self.present[index] = True
        time.sleep(0.003)  # augmentation
        return self.decoded[index].clone(), torch.tensor([float(index % 7)])


data = Shared(2000)
loader = DataLoader(data, batch_size=c["batch_size"], num_workers=c["num_workers"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(1000):
    total, missing = 0.0, int((~data.present).sum())
    for x, y in loader:
        total += x.double().sum().item()
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if COUNT:
        print("epoch", epoch, "sum", total, "decoded in it", missing)
        if epoch == 1:
            break
