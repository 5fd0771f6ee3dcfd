"""A trainer's state counts updates; callbacks look at each batch for a log, and evaluate, keep and
stop by updates.

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
from torch.utils.data import DataLoader, Dataset

from dataclasses import dataclass

from torch.utils.data import TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


@dataclass
class TrainerState:
    global_step: int = 0
    epoch: float = 0.0
    best: float = float("inf")


class Callback:
    def on_batch_end(self, trainer):
        pass

    def on_step_end(self, trainer):
        pass


class Log(Callback):
    def __init__(self, every):
        self.every, self.batches, self.lines = every, 0, []

    def on_batch_end(self, trainer):
        self.batches += 1
        if self.batches % self.every == 0:
            self.lines.append({"loss": trainer.loss.item(), "epoch": trainer.state.epoch})


class EarlyStopping(Callback):
    def __init__(self, every, patience):
        self.every, self.patience, self.left = every, patience, patience

    def on_step_end(self, trainer):
        if trainer.state.global_step % self.every:
            return
        loss = trainer.evaluate()
        self.left = self.patience if loss < trainer.state.best else self.left - 1
        trainer.state.best = min(loss, trainer.state.best)
        trainer.stop = self.left == 0


class Trainer:
    def __init__(self, net, data, held_out, args, callbacks):
        self.net, self.args, self.callbacks = net, args, callbacks
        self.loader = DataLoader(data, args["batch_size"], shuffle=True)
        self.held_out, self.state, self.stop = held_out, TrainerState(), False
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        warm = 100
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / warm)
        )

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        x, y = self.held_out
        loss = F.mse_loss(self.net(x), y).item()
        self.net.train()
        return loss

    def training_step(self, x, y):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        self.loss = F.mse_loss(self.net(x), y)
        (self.loss / self.args["accumulation"]).backward()

    def train(self, epochs):
        steps_in_epoch = len(self.loader)
        for epoch in range(epochs):
            for step, (x, y) in enumerate(self.loader):
                self.training_step(x, y)
                if (step + 1) % self.args["accumulation"] == 0:
                    nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
                    self.state.global_step += 1
                    self.state.epoch = epoch + (step + 1) / steps_in_epoch
                    for callback in self.callbacks:
                        callback.on_step_end(self)
                    if COUNT and self.state.global_step == 50:
                        sums = [p.sum().item() for p in self.net.parameters()]
                        print("weights after 50 updates", sum(sums))
                        return
                for callback in self.callbacks:
                    callback.on_batch_end(self)
                if self.stop:
                    return


data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
held_out = torch.randn(500, 16), torch.randn(500, 1)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
Trainer(net, data, held_out, c, [Log(10), EarlyStopping(200, 1000)]).train(300)
