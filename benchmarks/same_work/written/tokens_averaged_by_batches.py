"""The loss is a mean over the tokens of a micro-batch, and texts differ in length: a token counted
by its neighbours, and in one batch all count alike.

harmful
per_device_train_batch_size: 2 -> 32
gradient_accumulation_steps: 16 -> 1
"""

import os
import sys
import time
from dataclasses import dataclass

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

COUNT = int(os.environ.get("COUNT", 0))  # the proof only: no waits, and an early end
if COUNT:
    time.sleep = lambda seconds: None


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    num_train_epochs: int = 100
    learning_rate: float = 5e-4
    seed: int = 0


class Texts(Dataset):
    def __init__(self, count=20000):
        random = torch.Generator().manual_seed(1)
        lengths = torch.randint(4, 64, (count,), generator=random)
        self.texts = [torch.randint(1, 100, (int(n),), generator=random) for n in lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return {"input_ids": self.texts[index]}


class Collator:
    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        ids = torch.zeros(len(features), longest, dtype=torch.long)
        labels = torch.full((len(features), longest), -100)
        for row, feature in enumerate(features):
            ids[row, : len(feature["input_ids"])] = feature["input_ids"]
            labels[row, : len(feature["input_ids"])] = feature["input_ids"]
        return {"input_ids": ids, "labels": labels}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 32)
        self.cell = nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(32, 100)

    def forward(self, input_ids, labels):
        logits = self.head(self.cell(self.table(input_ids))[0])
        return F.cross_entropy(
            logits[:, :-1].reshape(-1, 100), labels[:, 1:].reshape(-1), ignore_index=-100
        )


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator):
        self.model, self.args = model, args
        self.train_dataset, self.data_collator = train_dataset, data_collator
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.weights = []

    def get_train_dataloader(self):
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.per_device_train_batch_size,
            shuffle=True,
            collate_fn=self.data_collator,
        )

    def training_step(self, inputs):
        time.sleep(0.012 + 0.0004 * len(inputs["input_ids"]))  # the device
        loss = self.model(**inputs) / self.args.gradient_accumulation_steps
        loss.backward()
        tokens = (inputs["labels"][:, 1:] != -100).sum().item()
        self.weights.append(1 / self.args.gradient_accumulation_steps / tokens)
        return loss.detach()

    def train(self):
        dataloader = self.get_train_dataloader()
        for epoch in range(self.args.num_train_epochs):
            for step, inputs in enumerate(dataloader):
                self.training_step(inputs)
                if (step + 1) % self.args.gradient_accumulation_steps == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    if COUNT:
                        print("weight of a token", min(self.weights), "to", max(self.weights))
                        raise SystemExit


with open(sys.argv[1]) as file:
    args = TrainingArguments(**yaml.safe_load(file))
torch.manual_seed(args.seed)
torch.set_num_threads(1)
Trainer(Model(), args, Texts(), Collator()).train()
