"""A collator grows its crops by the batches that it has made: workers count for themselves, and start
anew in each epoch.

harmful
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


class Signals(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the disk
        return torch.arange(64).float().add(index).sin(), float(index % 7)


class GrowingCrops:
    """Crops of 16, and by 4 more after each 50 batches, up to 64."""

    def __init__(self):
        self.made = 0

    def __call__(self, rows):
        size = min(64, 16 + self.made // 50 * 4)
        self.made += 1
        return torch.stack([x[:size] for x, _ in rows]), torch.tensor([[y] for _, y in rows])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(1, 16, 5, padding=2), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(F.relu(self.conv(x.unsqueeze(1))).mean(2))


def main(path):
    with open(path) as file:
        c = yaml.safe_load(file)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Signals(),
        batch_size=c["batch_size"],
        num_workers=c["num_workers"],
        shuffle=True,
        collate_fn=GrowingCrops(),
    )
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(100):
        for number, (x, y) in enumerate(loader):
            if COUNT and number in (0, 249):
                print("epoch", epoch, "batch", number, "crops of", x.shape[1])
            if COUNT:
                continue
            loss = F.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if COUNT and epoch == 2:
            return


main(sys.argv[1])
