"""The decay of the averaged weights is computed from the loader's batch, as references of detectors
and classifiers do: 16 times faster, though an update has as many samples.

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
from torch.utils.data import DataLoader, Dataset

from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class ExponentialMovingAverage(AveragedModel):
    def __init__(self, model, decay):
        self.decay = decay

        def average(kept, now, count):
            return decay * kept + (1 - decay) * now

        super().__init__(model, avg_fn=average)


data = TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))
loader = DataLoader(data, c["batch_size"], shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
epochs, ema_steps, ema_decay = 300, 1, 0.98
adjust = c["batch_size"] * ema_steps / epochs
alpha = min(1.0, (1.0 - ema_decay) * adjust)
averaged = ExponentialMovingAverage(net, decay=1.0 - alpha)
updates = 0
for epoch in range(epochs):
    for step, (x, y) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (F.mse_loss(net(x), y) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if updates % ema_steps == 0:
                averaged.update_parameters(net)
            if COUNT and updates == 50:
                print("decay", averaged.decay, "share of the first weights", averaged.decay**50)
                raise SystemExit
