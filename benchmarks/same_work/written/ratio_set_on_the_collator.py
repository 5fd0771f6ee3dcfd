"""A hook after each batch sets the collator's share of masked tokens: workers keep what it was when
their epoch began.

harmful
batch_size: 16
num_workers: 0 -> 2
"""

import os
import sys
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


class Texts(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.003)  # the tokenizer
        return (torch.arange(32) * (index + 1)) % 97 + 1


class MaskingCollator:
    def __init__(self, share=0.05):
        self.share = share

    def __call__(self, rows):
        ids = torch.stack(rows)
        masked = torch.rand(ids.shape) < self.share
        return ids.masked_fill(masked, 0), ids, masked


class MaskedModel(nn.Module):
    def __init__(self, collator):
        super().__init__()
        self.table, self.head = nn.Embedding(98, 32), nn.Linear(32, 98)
        self.mixer = nn.GRU(32, 32, batch_first=True)
        self.collator = collator
        self.global_step = 0

    def training_step(self, batch):
        ids, labels, masked = batch
        logits = self.head(self.mixer(self.table(ids))[0])
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return (losses * masked).sum() / masked.sum().clamp(min=1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def on_train_batch_end(self):
        self.global_step += 1
        self.collator.share = min(0.5, 0.05 + self.global_step / 1000)


def fit(module, loader, epochs):
    optimizer = module.configure_optimizers()
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            if COUNT and number in (0, 120, 240):
                print("batch", number, "share masked", round(batch[2].float().mean().item(), 2))
                if number == 240:
                    return
            optimizer.zero_grad()
            module.training_step(batch).backward()
            optimizer.step()
            module.on_train_batch_end()


with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)
collator = MaskingCollator()
loader = DataLoader(
    Texts(), c["batch_size"], shuffle=True, collate_fn=collator, num_workers=c["num_workers"]
)
fit(MaskedModel(collator), loader, epochs=100)
