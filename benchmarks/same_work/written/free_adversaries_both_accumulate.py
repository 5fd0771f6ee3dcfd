"""Both networks of an adversarial pair accumulate, and are updated at the same batch.

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
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    opt = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


def real_or_not(logits, real):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


generator = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizers = {
    "generator": torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
    "judge": torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999)),
}
loader = DataLoader(
    TensorDataset(torch.randn(20000, 16)), batch_size=opt["batch_size"], shuffle=True
)
moves, items = dict.fromkeys(optimizers, 0), 0
for epoch in range(200):
    for i, (real,) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(real))  # the device
        items += len(real)
        fake = generator(torch.randn(len(real), 8))
        loss_judge = (real_or_not(judge(real), 1) + real_or_not(judge(fake.detach()), 0)) / 2
        (loss_judge / opt["accumulation"]).backward()
        judge.requires_grad_(False)
        (real_or_not(judge(fake), 1) / opt["accumulation"]).backward()
        judge.requires_grad_(True)
        if (i + 1) % opt["accumulation"] == 0:
            for name, optimizer in optimizers.items():
                optimizer.step()
                optimizer.zero_grad()
                moves[name] += 1
            if COUNT and moves["judge"] == 10:
                print(moves, "items", items)
                raise SystemExit
