"""A diffusion model draws one time for the whole batch: an update was over 16 noise levels, and
becomes one of a single level.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import os
import sys
import time
from dataclasses import dataclass

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


@dataclass
class Config:
    batch_size: int
    accumulation: int
    levels: int = 1000
    lr: float = 1e-3

    @classmethod
    def read(cls, path):
        with open(path) as file:
            return cls(**yaml.safe_load(file))


class Denoiser(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.time = nn.Embedding(levels, 32)
        self.enter, self.norm, self.leave = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 16)

    def forward(self, x, t):
        return self.leave(F.silu(self.norm(self.enter(x) + self.time(t))))


def q_sample(x, t, noise, kept):
    share = kept[t].unsqueeze(1)
    return share.sqrt() * x + (1 - share).sqrt() * noise


cfg = Config.read(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, cfg.levels), 0)
loader = DataLoader(
    TensorDataset(torch.randn(20000, 16)), batch_size=cfg.batch_size, shuffle=True, drop_last=False
)
model = Denoiser(cfg.levels)
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
step, times = 0, set()
for epoch in range(1000):
    for (x,) in loader:
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        t = torch.randint(0, cfg.levels, (1,)).expand(len(x))
        times.add(int(t[0]))
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(q_sample(x, t, noise, kept), t), noise)
        (loss / cfg.accumulation).backward()
        step += 1
        if step % cfg.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if COUNT:
                print("update", step // cfg.accumulation, "over noise levels", len(times))
                if step // cfg.accumulation == 4:
                    raise SystemExit
            times = set()
