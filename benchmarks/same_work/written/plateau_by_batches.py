"""ReduceLROnPlateau is stepped with the loss of each batch, with patience of 300: 19 updates without
progress cut the rate, and then 300 do.

harmful
train: {batch_size: 2, accumulation: 16} -> {batch_size: 32, accumulation: 1}
optimizer: {lr: 0.01, patience: 300, factor: 0.5}
"""

import os
import sys
import time
from types import SimpleNamespace

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


def load(path):
    with open(path) as file:
        raw = yaml.safe_load(file)
    return SimpleNamespace(**{name: SimpleNamespace(**part) for name, part in raw.items()})


def build(cfg):
    net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg.optimizer.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=cfg.optimizer.factor, patience=cfg.optimizer.patience
    )
    return net, optimizer, plateau


def fit(cfg):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
    loader = DataLoader(data, batch_size=cfg.train.batch_size, shuffle=True)
    net, optimizer, plateau = build(cfg)
    updates = 0
    for epoch in range(1000):
        for number, (x, y) in enumerate(loader, 1):
            time.sleep(0.012 + 0.0004 * len(x))  # the device
            loss = F.mse_loss(net(x), y)
            (loss / cfg.train.accumulation).backward()
            if number % cfg.train.accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
                updates += 1
                if COUNT and updates in (100, 500):
                    print("updates", updates, "rate", optimizer.param_groups[0]["lr"])
                    if updates == 500:
                        return
            plateau.step(loss.item())


fit(load(sys.argv[1]))
