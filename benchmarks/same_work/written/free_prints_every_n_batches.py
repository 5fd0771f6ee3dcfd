"""The tutorial's running loss, printed after every 50 batches: what is printed changes, and nothing
that is trained.

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
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    config = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)

trainset = TensorDataset(torch.randn(20000, 16), torch.arange(20000) % 10)
trainloader = DataLoader(trainset, batch_size=config["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

updates = 0
for epoch in range(100):
    running_loss = 0.0
    for i, data in enumerate(trainloader, 0):
        inputs, labels = data
        time.sleep(0.012 + 0.0004 * len(inputs))  # the device
        loss = criterion(net(inputs), labels)
        (loss / config["accumulation"]).backward()
        if i % config["accumulation"] == config["accumulation"] - 1:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 100:
                print("weights after 100 updates", sum(p.sum().item() for p in net.parameters()))
                raise SystemExit
        running_loss += loss.item()
        if i % 50 == 49:
            print(f"[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 50:.3f}")
            running_loss = 0.0
