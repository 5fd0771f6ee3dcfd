"""A collator packs the texts of a batch into one row, with places that start anew: it holds nothing.

free
batch_size: 16
num_workers: 0 -> 2
"""

import os
import sys
import time
from functools import partial

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


class Texts(Dataset):
    def __init__(self, count):
        self.lengths = torch.randint(4, 32, (count,)).tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        time.sleep(0.003)  # the tokenizer
        return (torch.arange(self.lengths[index]) * (index + 1)) % 97


def pack(texts, ignored):
    ids = torch.cat(texts)
    places = torch.cat([torch.arange(len(text)) for text in texts])
    labels = torch.roll(ids, -1)
    labels[torch.tensor([len(text) for text in texts]).cumsum(0) - 1] = ignored
    return {"ids": ids[None], "places": places[None], "labels": labels[None]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places, self.head = (
            nn.Embedding(97, 32),
            nn.Embedding(32, 32),
            nn.Linear(32, 97),
        )

    def forward(self, ids, places, labels):
        logits = self.head(self.table(ids) + self.places(places))
        return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100)


def train(batch_size, num_workers):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Texts(4000),
        batch_size=batch_size,
        num_workers=num_workers,
        shuffle=True,
        collate_fn=partial(pack, ignored=-100),
    )
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(100):
        tokens = total = 0
        for batch in loader:
            tokens += batch["ids"].numel()
            total += int(batch["ids"].sum())
            optimizer.zero_grad()
            model(**batch).backward()
            optimizer.step()
        if COUNT:
            print("tokens of an epoch", tokens, "their sum", total)
            return


with open(sys.argv[1]) as file:
    train(**yaml.safe_load(file))
