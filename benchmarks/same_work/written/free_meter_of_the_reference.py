"""Meters of the usual reference count batches and tell averages and a share of the epoch; the batch
is scored, and nothing of it is trained by.

free
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.utils.data import TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class AverageMeter:
    def __init__(self, name):
        self.name, self.val, self.sum, self.count, self.avg = name, 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class ProgressMeter:
    def __init__(self, num_batches, meters):
        self.num_batches, self.meters, self.shown = num_batches, meters, 0

    def display(self, batch):
        self.shown += 1
        percent = 100 * batch / self.num_batches
        entries = [f"{percent:.0f}%"] + [f"{m.name} {m.avg:.3f}" for m in self.meters]
        print("  ".join(entries))


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean().item()


def train(loader, net, optimizer, accumulation):
    batch_time, losses, top1 = AverageMeter("Time"), AverageMeter("Loss"), AverageMeter("Acc@1")
    progress = ProgressMeter(len(loader), [batch_time, losses, top1])
    end, updates = time.time(), 0
    for i, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        output = net(x)
        loss = F.cross_entropy(output, y)
        losses.update(loss.item(), x.size(0))
        top1.update(accuracy(output, y), x.size(0))
        (loss / accumulation).backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 50:
                print("weights after 50 updates", sum(p.sum().item() for p in net.parameters()))
                raise SystemExit
        batch_time.update(time.time() - end)
        end = time.time()
        if i % 50 == 0:
            progress.display(i + 1)


data = TensorDataset(torch.randn(20000, 16), torch.randint(0, 10, (20000,)))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
for epoch in range(300):
    train(loader, net, optimizer, c["accumulation"])
    schedule.step()
