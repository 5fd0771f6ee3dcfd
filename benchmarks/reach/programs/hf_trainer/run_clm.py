"""Train a causal language model from scratch with the Trainer."""

import os
import sys
from dataclasses import dataclass, field

import torch
from step_clock import StepClock
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)


@dataclass
class ModelArguments:
    n_layer: int = field(default=2, metadata={"help": "Layers of the model."})
    n_embd: int = field(default=64)


@dataclass
class DataArguments:
    block_size: int = field(default=64, metadata={"help": "Tokens of one row."})
    train_rows: int = field(default=20000)


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, length):
        self.rows, self.length = rows, length

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(512, (self.length,), generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


class Clock(TrainerCallback):
    def __init__(self):
        self.clock = StepClock()

    def on_step_end(self, args, state, control, **kwargs):
        self.clock.tick(args.per_device_train_batch_size * args.gradient_accumulation_steps)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(os.path.abspath(sys.argv[1]))
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    config = GPT2Config(
        vocab_size=512,
        n_positions=data_args.block_size,
        n_embd=model_args.n_embd,
        n_layer=model_args.n_layer,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training_args,
        train_dataset=Rows(data_args.train_rows, data_args.block_size),
        data_collator=default_data_collator,
        callbacks=[Clock()],
    )
    if training_args.do_train:
        result = trainer.train()
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)


if __name__ == "__main__":
    main()
