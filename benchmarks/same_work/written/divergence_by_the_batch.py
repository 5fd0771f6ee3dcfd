"""The weight of the divergence is the batch over the number of pictures, as in collections of
autoencoders: it is 16 times as large.

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

from torch.utils.data import TensorDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 8), nn.Linear(4, 64)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance

    def loss_function(self, made, x, mean, log_variance, M_N):
        recons_loss = F.mse_loss(made, x)
        kld_loss = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean(0)
        return recons_loss + M_N * kld_loss


class Experiment:
    def __init__(self, model, params, data):
        self.model, self.params = model, params
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.num_train_imgs = len(data)

    def training_step(self, x):
        made, mean, log_variance = self.model(x)
        weight = self.params["batch_size"] / self.num_train_imgs
        if COUNT:
            print("weight of the divergence", weight)
            raise SystemExit
        return self.model.loss_function(made, x, mean, log_variance, M_N=weight)


data = TensorDataset(torch.rand(20000, 64))
loader = DataLoader(data, c["batch_size"], shuffle=True)
experiment = Experiment(VAE(), c, data)
for epoch in range(100):
    for step, (x,) in enumerate(loader):
        time.sleep(0.012 + 0.0004 * len(x))  # the device
        (experiment.training_step(x) / c["accumulation"]).backward()
        if (step + 1) % c["accumulation"] == 0:
            experiment.optimizer.step()
            experiment.optimizer.zero_grad()
