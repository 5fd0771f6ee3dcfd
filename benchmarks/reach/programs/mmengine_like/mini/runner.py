import os

import torch
from step_clock import StepClock
from torch.utils.data import DataLoader

from .registry import DATASETS, MODELS


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(0)
        self.model = MODELS.build(cfg.model)
        loader = dict(cfg.train_dataloader)
        dataset = DATASETS.build(loader.pop("dataset"))
        sampler = loader.pop("sampler")
        self.loader = DataLoader(
            dataset, shuffle=sampler["shuffle"], collate_fn=self.pseudo_collate, **loader
        )
        wrapper = cfg.optim_wrapper
        optimizer = dict(wrapper["optimizer"])
        self.optimizer = getattr(torch.optim, optimizer.pop("type"))(
            self.model.parameters(), **optimizer
        )
        self.counts = wrapper.get("accumulative_counts", 1)
        self.clock = StepClock()

    @staticmethod
    def pseudo_collate(batch):
        return {
            "inputs": [sample["inputs"] for sample in batch],
            "data_samples": [sample["data_samples"] for sample in batch],
        }

    def train(self):
        interval = self.cfg.default_hooks["logger"]["interval"]
        for epoch in range(self.cfg.train_cfg["max_epochs"]):
            for i, data in enumerate(self.loader):
                losses = self.model(**data, mode="loss")
                (losses["loss"] / self.counts).backward()
                if (i + 1) % self.counts == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                self.clock.tick(len(data["inputs"]))
                if (i + 1) % interval == 0:
                    print(f"Epoch({epoch})[{i + 1}/{len(self.loader)}] loss: {losses['loss']:.4f}")
            os.makedirs(self.cfg.work_dir, exist_ok=True)
            path = os.path.join(self.cfg.work_dir, f"epoch_{epoch}.pth")
            torch.save({"state_dict": self.model.state_dict()}, path)
