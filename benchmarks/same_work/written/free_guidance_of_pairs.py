"""Classifier-free guidance: each call has every item twice, with and without its prompt. Noise is of
the item's own seed.

free
batch_size: 4 -> 64
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)
STEPS, SCALE = 10, 3.0


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.enter, self.leave = (
            nn.Embedding(1000, 32),
            nn.Linear(24, 32),
            nn.Linear(32, 16),
        )

    def forward(self, x, t, prompt):
        return self.leave(F.silu(self.enter(torch.cat([x, prompt], 1)) + self.time(t)))


def noise_of(seed):
    return torch.randn(16, generator=torch.Generator().manual_seed(int(seed)))


@torch.no_grad()
def sample(net, prompts, seeds):
    x = torch.stack([noise_of(seed) for seed in seeds])
    for t in torch.linspace(999, 0, STEPS).long():
        time.sleep(0.010)  # the device
        both = torch.cat([prompts, torch.zeros_like(prompts)])
        given, free = net(torch.cat([x, x]), t.expand(2 * len(x)), both).chunk(2)
        x = x - 0.1 * (free + SCALE * (given - free))
    return x


net = Denoiser().eval()
prompts = torch.randn(4000, 8)
os.makedirs("images", exist_ok=True)
for number in DataLoader(range(4000), batch_size=c["batch_size"]):
    images = sample(net, prompts[number], number)
    for name, image in zip(number.tolist(), images):
        torch.save(image.clone(), f"images/{name:04d}.pt")
    if COUNT and 63 in number:
        print("image 5", torch.load("images/0005.pt")[:3].tolist(), len(os.listdir("images")))
        break
