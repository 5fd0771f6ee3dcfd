"""The loss that balances experts multiplies two means over the batch: over two items it is another
one than over 32.

harmful
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
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


class Experts(nn.Module):
    def __init__(self, width=16, experts=8):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.balance = None

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        best = shares.argmax(1)
        used = F.one_hot(best, len(self.experts)).float().mean(0)
        self.balance = len(self.experts) * (used * shares.mean(0)).sum()
        every = torch.stack([expert(x) for expert in self.experts], 1)
        return every[torch.arange(len(x)), best] * shares.max(1, keepdim=True).values


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts, self.head = Experts(), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(F.relu(self.experts(x)))


def main():
    with open(sys.argv[1]) as file:
        c = yaml.safe_load(file)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
    loader = DataLoader(data, batch_size=c["batch_size"], shuffle=True)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    balances = []
    for _ in range(100):
        for number, (x, y) in enumerate(loader, start=1):
            time.sleep(0.012 + 0.0004 * len(x))  # the device
            loss = F.mse_loss(net(x), y) + 0.01 * net.experts.balance
            (loss / c["accumulation"]).backward()
            balances.append(net.experts.balance.item())
            if number % c["accumulation"] == 0:
                optimizer.step()
                optimizer.zero_grad()
                if COUNT:
                    print("balance of the first update", sum(balances) / len(balances))
                    return


main()
