"""A diffusion model draws a time for each item; warm-up, clipping and the average of the weights run
by updates.

free
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import copy
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
    warmup_updates: int = 500
    keep: float = 0.999


class Denoiser(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.time = nn.Embedding(levels, 32)
        self.enter, self.norm, self.leave = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 16)

    def forward(self, x, t):
        return self.leave(F.silu(self.norm(self.enter(x) + self.time(t))))


class Ema:
    def __init__(self, model, keep):
        self.model, self.keep, self.moves = copy.deepcopy(model).requires_grad_(False), keep, 0

    @torch.no_grad()
    def update(self, model):
        self.moves += 1
        for mine, new in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(new, 1 - self.keep)


def main(cfg):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, cfg.levels), 0)
    data = TensorDataset(torch.randn(20000, 16))
    loader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True)
    model = Denoiser(cfg.levels)
    ema = Ema(model, cfg.keep)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda update: min(1.0, (update + 1) / cfg.warmup_updates)
    )
    times = []
    for _ in range(100):
        for step, (x,) in enumerate(loader):
            time.sleep(0.012 + 0.0004 * len(x))  # the device
            t = torch.randint(0, cfg.levels, (len(x),))
            times += t.tolist()
            noise = torch.randn_like(x)
            share = kept[t].unsqueeze(1)
            noisy = share.sqrt() * x + (1 - share).sqrt() * noise
            loss = F.mse_loss(model(noisy, t), noise)
            (loss / cfg.accumulation).backward()
            if (step + 1) % cfg.accumulation == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                warmup.step()
                ema.update(model)
                if COUNT:
                    rate = optimizer.param_groups[0]["lr"]
                    print("times of the update", len(times), "rate", rate, "moves", ema.moves)
                    return


with open(sys.argv[1]) as file:
    main(Config(**yaml.safe_load(file)))
