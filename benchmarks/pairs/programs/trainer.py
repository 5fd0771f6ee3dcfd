"""Trainer of transformers, which builds the DataLoader itself."""

import torch
from body import Clock, Device, Items
from transformers import Trainer, TrainerCallback, TrainingArguments


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
        self.clock.tick(args.per_device_train_batch_size)

    def on_train_end(self, args, state, control, **_):
        self.clock.stop()


args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    dataloader_num_workers=0,
    num_train_epochs=1,
    use_cpu=True,
    disable_tqdm=True,
    save_strategy="no",
    report_to="none",
    remove_unused_columns=False,
)
Trainer(Model(), args, train_dataset=Items(), data_collator=collate, callbacks=[Watch()]).train()
