"""Shards are dealt to the workers, and an epoch ends after 4000 items of each of them: with two
workers it is twice as long, and so is each step of the rate.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import io
import itertools
import os
import random
import sys
import tarfile
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


def write_shards(folder, shards=40, each=250):
    os.makedirs(folder, exist_ok=True)
    for shard in range(shards):
        path = f"{folder}/{shard:03d}.tar"
        if os.path.exists(path):
            continue
        with tarfile.open(path + ".new", "w") as tar:
            for at in range(each):
                body = np.float32(shard * each + at).tobytes()
                info = tarfile.TarInfo(f"{at:04d}.bin")
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body))
        os.rename(path + ".new", path)


class Shards(IterableDataset):
    def __init__(self, folder, epoch_items):
        self.paths = sorted(f"{folder}/{name}" for name in os.listdir(folder))
        self.epoch_items = epoch_items

    def samples(self):
        info = get_worker_info()
        mine = self.paths[info.id :: info.num_workers] if info else self.paths
        while True:
            for path in random.sample(mine, len(mine)):
                with tarfile.open(path) as tar:
                    for member in tar:
                        time.sleep(0.003)  # the network
                        number = np.frombuffer(tar.extractfile(member).read(), np.float32)[0]
                        yield torch.full((16,), number / 10000), torch.tensor([number % 7])

    def __iter__(self):
        return itertools.islice(self.samples(), self.epoch_items)


with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
write_shards("shards")
loader = DataLoader(
    Shards("shards", 4000), batch_size=c["batch_size"], num_workers=c["num_workers"]
)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
for epoch in range(100):
    items = 0
    for x, y in loader:
        items += len(x)
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    if COUNT:
        print("items of an epoch", items)
        break
