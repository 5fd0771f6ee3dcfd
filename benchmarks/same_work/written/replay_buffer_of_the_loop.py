"""A DQN plays in its loop and appends to a buffer, from which an IterableDataset draws: workers draw
from the buffer as it was when they began.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import os
import random
import sys
import time
from collections import deque

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def append(self, experience):
        self.buffer.append(experience)

    def sample(self):
        return self.buffer[random.randrange(len(self.buffer))]


class RLDataset(IterableDataset):
    def __init__(self, buffer):
        self.buffer = buffer

    def __iter__(self):
        while True:
            time.sleep(0.003)  # frames are decoded
            yield self.buffer.sample()


class Agent:
    def __init__(self, buffer, net):
        self.buffer, self.net, self.played = buffer, net, 0
        self.state = torch.randn(16)

    @torch.no_grad()
    def play_step(self, epsilon=0.1):
        if random.random() < epsilon:
            action = random.randrange(4)
        else:
            action = int(self.net(self.state).argmax())
        following = torch.randn(16)
        self.buffer.append((self.state, action, float(action == 1), following, self.played))
        self.state, self.played = following, self.played + 1


def new_net():
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))


net, target, buffer = new_net(), new_net(), ReplayBuffer(1000)
target.load_state_dict(net.state_dict())
agent = Agent(buffer, net)
for _ in range(200):
    agent.play_step(1.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = DataLoader(RLDataset(buffer), batch_size=c["batch_size"], num_workers=c["num_workers"])
for step, (states, actions, rewards, following, numbers) in enumerate(loader):
    agent.play_step()
    values = net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        goal = rewards.float() + 0.9 * target(following).max(1).values
    loss = F.smooth_l1_loss(values, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if COUNT and step % 400 == 0:
        print("update", step, "newest step trained on", int(numbers.max()))
        if step == 1200:
            raise SystemExit
