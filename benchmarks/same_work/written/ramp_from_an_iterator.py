"""A VAE takes the weight of its divergence from an iterator, one value a batch: after 250 updates it
was 0.2, and then is 0.0125.

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
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Vae(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.enter, self.leave = nn.Linear(16, 2 * latent), nn.Linear(latent, 16)

    def forward(self, x):
        mean, log_var = self.enter(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.leave(z), mean, log_var


def ramp(length):
    for at in range(length):
        yield at / length
    while True:
        yield 1.0


def divergence(mean, log_var):
    return -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1).mean()


model, betas = Vae(), ramp(20000)
loader = DataLoader(TensorDataset(torch.randn(20000, 16)), batch_size=c["batch_size"], shuffle=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
updates = 0
for epoch in range(100):
    for number, (x,) in enumerate(loader, start=1):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        found, mean, log_var = model(x)
        beta = next(betas)
        loss = F.mse_loss(found, x) + beta * divergence(mean, log_var)
        (loss / c["accumulation"]).backward()
        if number % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if COUNT and updates == 250:
                print("updates", updates, "weight of the divergence", beta)
                raise SystemExit
