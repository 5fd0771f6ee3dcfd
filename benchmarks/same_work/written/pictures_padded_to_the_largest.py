"""Pictures of many sizes are padded to the largest of their batch, and normalised over the padding:
in a larger batch the features of small ones are others.

harmful
batch_size: 2 -> 16
accumulation: 8 -> 1
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


class Pictures(Dataset):
    def __len__(self):
        return 20000

    def __getitem__(self, index):
        height, width = 8 + index * 7 % 25, 8 + index * 11 % 25
        x = torch.full((1, height, width), 0.1 + index % 10 / 10)
        return x + 0.1 * torch.randn(1, height, width), index % 10


def collate(rows):
    height = max(x.shape[1] for x, _ in rows)
    width = max(x.shape[2] for x, _ in rows)
    xs = [F.pad(x, (0, width - x.shape[2], 0, height - x.shape[1])) for x, _ in rows]
    return torch.stack(xs), torch.tensor([y for _, y in rows])


loader = DataLoader(Pictures(), c["batch_size"], shuffle=True, collate_fn=collate)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.GroupNorm(2, 8),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
if COUNT:
    torch.manual_seed(3)
    rows = [loader.dataset[index] for index in range(1, 17)]
    batches = [rows[low : low + c["batch_size"]] for low in range(0, 16, c["batch_size"])]
    made = torch.cat([net(collate(batch)[0]) for batch in batches])
    print("outputs of item 3", [round(v, 3) for v in made[3].tolist()[:5]])
    raise SystemExit
for epoch in range(1000):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.cross_entropy(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
