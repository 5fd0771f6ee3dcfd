"""A generation goes on until every row has ended, and keeps what ended rows write after their
end: texts become longer.

harmful
batch_size: 4 -> 32
"""

import os
import random
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn

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
            nn.Embedding(40, 32),
            nn.GRUCell(32, 32),
            nn.Linear(32, 40),
        )

    def forward(self, ids, h=None):
        h = self.cell(self.table(ids), h)
        return self.head(h * 3), h


net = Model().eval()
prompts = torch.randint(1, 40, (4000,))
written = []
with torch.no_grad():
    for low in range(0, len(prompts), c["batch_size"]):
        step, h = prompts[low : low + c["batch_size"]], None
        done, new = torch.zeros(len(step), dtype=torch.bool), []
        while not done.all() and len(new) < 64:
            time.sleep(0.001)
            logits, h = net(step, h)
            step = logits.argmax(1)
            # the end of a text, by its content
            done |= (h.sum(1) * 97).long() % 5 == 0
            new.append(step)
        written += torch.stack(new, 1).tolist()
        if COUNT and low >= 64:
            break
print("tokens of the first texts", [len(w) for w in written[:12]])
torch.save(written, "texts.pt")
