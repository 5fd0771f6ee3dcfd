"""A VQ codebook follows the batches by running averages (buffers) in forward: 16 moves an update
become one.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
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
from torch.utils.data import DataLoader, TensorDataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Codebook(nn.Module):
    def __init__(self, codes=64, width=8, decay=0.99):
        super().__init__()
        self.decay = decay
        book = torch.randn(codes, width)
        self.register_buffer("book", book)
        self.register_buffer("sizes", torch.ones(codes))
        self.register_buffer("sums", book.clone())
        self.moves = 0

    def forward(self, z):
        near = torch.cdist(z, self.book).argmin(1)
        if self.training:
            hot = F.one_hot(near, len(self.book)).float()
            self.sizes.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
            self.sums.mul_(self.decay).add_(hot.T @ z.detach(), alpha=1 - self.decay)
            self.book.copy_(self.sums / self.sizes.clamp(min=1e-3).unsqueeze(1))
            self.moves += 1
        q = self.book[near]
        return z + (q - z).detach(), F.mse_loss(z, q.detach())


class Vq(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.book, self.leave = nn.Linear(16, 8), Codebook(), nn.Linear(8, 16)

    def forward(self, x):
        q, far = self.book(self.enter(x))
        return self.leave(q), far


data = TensorDataset(torch.randn(20000, 16))
loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
net = Vq()
start = net.book.book.clone()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
accumulation, count = c["accumulation"], 0
for epoch in range(1000):
    for (x,) in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        found, far = net(x)
        ((F.mse_loss(found, x) + 0.25 * far) / accumulation).backward()
        count += 1
        if count % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates = count // accumulation
            if COUNT and updates in (3, 10, 50):
                print(
                    "updates",
                    updates,
                    "moves of the codebook",
                    net.book.moves,
                    "size of it",
                    net.book.book.norm().item(),
                    "used",
                    (net.book.sizes > 0.05).sum().item(),
                )
                if updates == 50:
                    raise SystemExit
