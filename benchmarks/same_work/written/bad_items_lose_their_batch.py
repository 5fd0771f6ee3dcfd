"""A batch with a loss that is not finite is left out: one bad item in a hundred cost 2 % of the items
of an epoch, and then costs 27 %.

harmful
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import logging
import math
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
logger = logging.getLogger("train")


class Trainer:
    def __init__(self, config):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        x, y = torch.randn(20000, 16), torch.randn(20000, 1)
        y[torch.randperm(20000)[:200]] = math.nan  # labels that are missing
        self.accumulation = config["accumulation"]
        self.loader = DataLoader(TensorDataset(x, y), batch_size=config["batch_size"], shuffle=True)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.trained = self.batches = 0

    def step(self, x, y):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        loss = F.mse_loss(self.net(x), y)
        if not torch.isfinite(loss):
            logger.warning("loss is not finite, batch left out")
            return
        (loss / self.accumulation).backward()
        self.trained += len(x)

    def epoch(self):
        for x, y in self.loader:
            self.step(x, y)
            self.batches += 1
            if self.batches % self.accumulation == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    with open(sys.argv[1]) as file:
        trainer = Trainer(yaml.safe_load(file))
    for _ in range(100):
        trainer.epoch()
        if COUNT:
            print("items of an epoch that were trained on", trainer.trained, "of 20000")
            break
