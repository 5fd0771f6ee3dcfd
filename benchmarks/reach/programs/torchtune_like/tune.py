"""Run a recipe: `python tune.py --config FILE [key=value ...]`."""

import argparse
import importlib
import os
import time

import parts
import torch
import yaml
from step_clock import StepClock


def instantiate(section, *args, **kwargs):
    section = dict(section)
    module, _, name = section.pop("_component_").rpartition(".")
    return getattr(importlib.import_module(module), name)(*args, **{**section, **kwargs})


def load(path, overrides):
    with open(path) as f:
        config = yaml.safe_load(f)
    for override in overrides:
        key, _, value = override.partition("=")
        *parents, leaf = key.split(".")
        here = config
        for parent in parents:
            here = here[parent]
        here[leaf] = yaml.safe_load(value)
    return config


class FullFinetuneRecipe:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accumulation = cfg["gradient_accumulation_steps"]

    def setup(self):
        cfg = self.cfg
        torch.manual_seed(cfg["seed"])
        tokenizer = instantiate(cfg["tokenizer"])
        dataset = instantiate(cfg["dataset"], tokenizer)
        self.model = instantiate(cfg["model"])
        self.model.checkpointing = cfg["enable_activation_checkpointing"]
        if cfg["compile"]:
            self.model.compile()
        self.optimizer = instantiate(
            {**cfg["optimizer"], "lr": float(cfg["optimizer"]["lr"])}, self.model.parameters()
        )
        self.loss = instantiate(cfg["loss"])
        sampler = torch.utils.data.DistributedSampler(
            dataset, num_replicas=1, rank=0, shuffle=cfg["shuffle"], seed=0
        )
        self.dataloader = torch.utils.data.DataLoader(
            dataset,
            batch_size=cfg["batch_size"],
            sampler=sampler,
            drop_last=True,
            collate_fn=parts.padded_collate_sft,
        )
        self.sampler = sampler
        self.clock = StepClock()

    def train(self):
        running, tokens, begun, seqs = 0.0, 0, time.perf_counter(), 0
        for epoch in range(self.cfg["epochs"]):
            self.sampler.set_epoch(epoch)
            for idx, batch in enumerate(self.dataloader):
                labels = batch["labels"]
                current = (labels != -100).sum()
                tokens, seqs = tokens + int(current), seqs + len(labels)
                logits = self.model(batch["tokens"])
                shifted = labels[:, 1:].reshape(-1)
                loss = self.loss(logits[:, :-1].reshape(-1, logits.size(-1)), shifted) * current
                running += loss.item()
                loss.backward()
                if (idx + 1) % self.accumulation == 0:
                    for p in self.model.parameters():
                        p.grad /= tokens
                    if self.cfg["clip_grad_norm"] is not None:
                        torch.nn.utils.clip_grad_norm_(
                            self.model.parameters(), self.cfg["clip_grad_norm"]
                        )
                    self.optimizer.step()
                    self.optimizer.zero_grad(set_to_none=True)
                    self.clock.tick(seqs)
                    spent = time.perf_counter() - begun
                    print(f"{epoch} loss {running / tokens:.4f} tokens/s {tokens / spent:.0f}")
                    running, tokens, begun, seqs = 0.0, 0, time.perf_counter(), 0
            os.makedirs(self.cfg["output_dir"], exist_ok=True)
            path = os.path.join(self.cfg["output_dir"], f"epoch_{epoch}.pt")
            torch.save(self.model.state_dict(), path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    args, rest = parser.parse_known_args()
    recipe = FullFinetuneRecipe(load(args.config, rest))
    recipe.setup()
    recipe.train()
