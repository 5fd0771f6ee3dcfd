"""The tokens of all batches of an update are counted first, and each loss is a sum over that number:
every token counts alike, whatever the batch.

free
batch_size: 2 -> 32
accumulation: 16 -> 1
"""

import itertools
import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


class Trainer:
    def __init__(self, batch_size, accumulation):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        lengths = torch.randint(4, 64, (20000,)).tolist()
        self.texts = [torch.randint(1, 100, (length,)) for length in lengths]
        self.loader = DataLoader(
            self.texts, batch_size=batch_size, shuffle=True, collate_fn=self.collate
        )
        self.accumulation = accumulation
        self.table, self.cell = nn.Embedding(100, 32), nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(32, 100)
        parts = nn.ModuleList([self.table, self.cell, self.head])
        self.optimizer = torch.optim.AdamW(parts.parameters(), lr=5e-4)
        self.parts = parts

    @staticmethod
    def collate(texts):
        return pad_sequence(texts, batch_first=True)

    def get_batch_samples(self, batches):
        group = list(itertools.islice(batches, self.accumulation))
        return group, sum(int((ids[:, 1:] > 0).sum()) for ids in group)

    def loss(self, ids, tokens):
        logits = self.head(self.cell(self.table(ids[:, :-1]))[0])
        return F.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], ignore_index=0, reduction="sum"
        ).div(tokens)

    def train(self):
        for _ in range(100):
            batches = iter(self.loader)
            while True:
                group, tokens = self.get_batch_samples(batches)
                if not group:
                    break
                total = 0.0
                for ids in group:
                    time.sleep(0.012 + 0.0004 * len(ids))  # the device
                    loss = self.loss(ids, tokens)
                    loss.backward()
                    total += loss.item()
                if COUNT:
                    norm = sum(p.grad.norm() ** 2 for p in self.parts.parameters()) ** 0.5
                    print("tokens of the update", tokens, "loss", round(total, 5), "gradient", norm)
                    return
                self.optimizer.step()
                self.optimizer.zero_grad()


with open(sys.argv[1]) as file:
    Trainer(**yaml.safe_load(file)).train()
