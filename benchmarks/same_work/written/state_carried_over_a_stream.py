"""The hidden state goes from batch to batch of one recording (truncated BPTT); with workers that
each read their own recordings it goes from one recording to another.

harmful
batch_size: 16
num_workers: 0 -> 2
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
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Recordings(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for recording in range(first, 40, step):
            for frame in range(1600):
                time.sleep(0.003)  # the disk
                yield torch.full((16,), frame / 1600), torch.tensor([float(recording)])


loader = DataLoader(Recordings(), batch_size=c["batch_size"], num_workers=c["num_workers"])
net, head = nn.LSTM(16, 32), nn.Linear(32, 1)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
for epoch in range(1000):
    hidden, before, crossed = None, None, 0
    for count, (x, y) in enumerate(loader):
        crossed += before is not None and before != y[0].item()
        before = y[-1].item()
        out, hidden = net(x.unsqueeze(1), hidden)
        hidden = tuple(h.detach() for h in hidden)
        loss = F.mse_loss(head(out[:, 0]), y / 40)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if COUNT and count == 400:
            print("batches that got the state of another recording", crossed, "of", count)
            raise SystemExit
