"""Trainer with a YAML or JSON: a loader that is waited for, or launches, by the config."""

import os
import sys

import torch
from body import Clock, Device, Items
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.device_ = Device()

    def forward(self, items, labels):
        return {"loss": (self.device_(items) - labels).square().mean()}


def collate(rows):
    items = torch.stack(rows)
    return {"items": items, "labels": items.mean(1, keepdim=True) / 97.0}


class Watch(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        self.clock = Clock()

    def on_step_end(self, args, state, control, **_):
        self.clock.tick(args.per_device_train_batch_size * args.gradient_accumulation_steps)

    def on_train_end(self, args, state, control, **_):
        self.clock.stop()


def main():
    parser = HfArgumentParser(TrainingArguments)
    read = parser.parse_json_file if sys.argv[1].endswith(".json") else parser.parse_yaml_file
    (args,) = read(sys.argv[1])
    args.remove_unused_columns = False
    items = Items(float(os.environ.get("LOAD_S", "0.003")))
    Trainer(Model(), args, train_dataset=items, data_collator=collate, callbacks=[Watch()]).train()


if __name__ == "__main__":
    main()
