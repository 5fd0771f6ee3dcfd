"""An IterableDataset plays its environment with the policy that is trained (Lightning's
experience source); workers play the first policy for ever.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Experience(IterableDataset):
    def __init__(self, policy):
        self.policy = policy

    def __iter__(self):
        state = torch.randn(16)
        while True:
            with torch.no_grad():
                logits = self.policy(state)
            action = torch.distributions.Categorical(logits=logits).sample()
            time.sleep(0.003)  # the environment
            reward = 1.0 if action == 0 else 0.0
            yield state, action, torch.tensor(reward)
            state = torch.randn(16)


policy = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4))
loader = DataLoader(Experience(policy), batch_size=c["batch_size"], num_workers=c["num_workers"])
optimizer = torch.optim.Adam(policy.parameters(), lr=0.003)
for count, (state, action, reward) in enumerate(loader):
    logs = torch.distributions.Categorical(logits=policy(state)).log_prob(action)
    loss = -(logs * (reward - 0.25)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if COUNT and count % 150 == 0:
        print("batch", count, "reward played", reward.mean().item())
        if count == 600:
            raise SystemExit
