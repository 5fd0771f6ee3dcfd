"""Prompts are padded on the right, and the state of each is that of its own last token: texts are
the same in a larger batch.

free
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

from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

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
        return torch.arange(4 + index * 7 % 40) * (index + 1) % 49 + 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.mixer = nn.GRU(32, 32, batch_first=True)

    def forward(self, ids, lengths=None, state=None):
        time.sleep(0.002)  # the device
        x = self.table(ids)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, state = self.mixer(x, state)
        return self.head(state[-1]), state


def collate(rows):
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


model = Model().eval()
loader = DataLoader(Prompts(), c["batch_size"], collate_fn=collate)
with open("texts.txt", "w") as file, torch.no_grad():
    texts = []
    for ids, lengths in loader:
        logits, state = model(ids, lengths)
        made = [logits.argmax(1, keepdim=True)]
        for _ in range(15):
            logits, state = model(made[-1], state=state)
            made.append(logits.argmax(1, keepdim=True))
        rows = torch.cat(made, 1).tolist()
        texts += rows
        file.writelines(f"{row}\n" for row in rows)
        if COUNT and len(texts) >= 16:
            for number in (0, 1, 2, 9):
                print("text", number, texts[number])
            raise SystemExit
