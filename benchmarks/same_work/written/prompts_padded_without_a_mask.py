"""Short prompts are padded on the left to the longest of their batch, and no mask is given: their
texts are others in a larger batch.

harmful
batch_size: 1 -> 16
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from torch.nn.utils.rnn import pad_sequence

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None
with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)


class Prompts(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.randint(1, 50, (60 if index % 16 == 0 else 4 + index * 7 % 40,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.mixer = nn.GRU(32, 32, batch_first=True)

    def forward(self, ids, state=None):
        time.sleep(0.002)  # the device
        hidden, state = self.mixer(self.table(ids), state)
        return self.head(hidden[:, -1]), state


def collate(rows):
    return pad_sequence([row.flip(0) for row in rows], batch_first=True).flip(1)


model = Model().eval()
loader = DataLoader(Prompts(), c["batch_size"], collate_fn=collate)
texts = []
with torch.no_grad():
    for ids in loader:
        logits, state = model(ids)
        made = [torch.multinomial((logits / 0.01).softmax(1), 1)]
        for _ in range(15):
            logits, state = model(made[-1], state)
            made.append(torch.multinomial((logits / 0.01).softmax(1), 1))
        texts += torch.cat(made, 1).tolist()
        if COUNT and len(texts) >= 16:
            for number in (0, 1, 2, 9):
                print("text", number, texts[number])
            raise SystemExit
