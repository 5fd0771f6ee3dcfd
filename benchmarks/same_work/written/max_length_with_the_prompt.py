"""Greedy generation up to max_length tokens, padded prompts included (generate(max_length=)):
beside longer prompts a short one gets fewer new tokens.

harmful
batch_size: 1 -> 32
"""

import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.cell, self.head = (
            nn.Embedding(100, 32),
            nn.GRU(32, 32, batch_first=True),
            nn.Linear(32, 100),
        )

    def forward(self, ids, mask, h=None):
        x = self.table(ids) * mask.unsqueeze(-1)
        out, h = self.cell(x, h)
        return self.head(out[:, -1]), h


net = Model().eval()
prompts = [torch.randint(1, 100, (60 if i % 2 == 0 and i else 10,)) for i in range(4000)]
written = []
with torch.no_grad():
    for low in range(0, len(prompts), c["batch_size"]):
        group = prompts[low : low + c["batch_size"]]
        longest = max(map(len, group))
        ids = torch.stack([F.pad(p, (longest - len(p), 0)) for p in group])
        new, h = [], None
        step, mask = ids, (ids > 0).float()
        for _ in range(longest, 80):
            time.sleep(0.002)
            logits, h = net(step, mask, h)
            step = logits.argmax(1, keepdim=True)
            mask = torch.ones(len(step), 1)
            new.append(step)
        written += torch.cat(new, 1).tolist()
        if COUNT and low >= 64:
            break
lengths = [len(w) for w in written[:64]]
print("new tokens of the first prompts", lengths[:6])
torch.save(written, "texts.pt")
