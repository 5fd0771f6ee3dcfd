"""The critic is updated by every batch and the generator once in an accumulation: 16 moves of the
critic for each of the generator become one.

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
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    opt = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)

generator = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16))
critic = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_d = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
loader = DataLoader(
    TensorDataset(torch.randn(20000, 16)), batch_size=opt["batch_size"], shuffle=True
)
moves = {"critic": 0, "generator": 0}

for epoch in range(200):
    for i, (real,) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(real))  # the device

        # critic
        optimizer_d.zero_grad()
        fake = generator(torch.randn(len(real), 8))
        loss_d = critic(fake.detach()).mean() - critic(real).mean()
        loss_d.backward()
        optimizer_d.step()
        moves["critic"] += 1
        for p in critic.parameters():
            p.data.clamp_(-0.1, 0.1)

        # generator
        loss_g = -critic(fake).mean() / opt["accumulation"]
        loss_g.backward()
        if (i + 1) % opt["accumulation"] == 0:
            optimizer_g.step()
            optimizer_g.zero_grad()
            moves["generator"] += 1
            if COUNT and moves["generator"] == 10:
                print(moves)
                raise SystemExit
