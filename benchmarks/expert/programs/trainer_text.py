"""Trainer with a YAML: a classifier of texts whose lengths differ, with checkpointing."""

import sys

from body import ITEMS, Clock, texts
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
import torch


class Texts(Dataset):
    def __init__(self):
        self.rows = list(texts(min(ITEMS, 4000)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": index % 2}


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    padded = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    ids = torch.tensor(padded)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


class Watch(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        self.clock = Clock()

    def on_step_end(self, args, state, control, **_):
        self.clock.tick(args.per_device_train_batch_size * args.gradient_accumulation_steps)

    def on_train_end(self, args, state, control, **_):
        self.clock.stop()


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_yaml_file(sys.argv[1])
    config = BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=256,
    )
    model = BertForSequenceClassification(config)
    Trainer(model, args, train_dataset=Texts(), data_collator=collate, callbacks=[Watch()]).train()


if __name__ == "__main__":
    main()
