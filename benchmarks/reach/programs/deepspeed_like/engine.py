"""initialize(), and an engine that steps by itself when an update is full."""

import json

import torch


class Engine:
    def __init__(self, module, config, data):
        batch, micro, steps = (
            config["train_batch_size"],
            config["train_micro_batch_size_per_gpu"],
            config["gradient_accumulation_steps"],
        )
        if batch != micro * steps:
            raise AssertionError(
                f"Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu "
                f"* gradient_acc_step * world_size {batch} != {micro} * {steps} * 1"
            )
        self.module, self.steps, self.config = module, steps, config
        params = config["optimizer"]["params"]
        kind = getattr(torch.optim, config["optimizer"]["type"])
        self.optimizer = kind(module.parameters(), **params)
        self.training_dataloader = torch.utils.data.DataLoader(data, batch_size=micro, shuffle=True)
        self.micro_steps = 0

    def __call__(self, *args):
        return self.module(*args)

    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.steps == 0

    def backward(self, loss):
        (loss / self.steps).backward()

    def step(self):
        if self.is_gradient_accumulation_boundary():
            torch.nn.utils.clip_grad_norm_(
                self.module.parameters(), self.config["gradient_clipping"]
            )
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.micro_steps += 1


def initialize(model, config, training_data):
    with open(config) as f:
        engine = Engine(model, json.load(f), training_data)
    return engine, engine.optimizer, engine.training_dataloader, None
