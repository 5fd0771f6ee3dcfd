"""LightningCLI: model and data are classes, their arguments stand in a YAML."""

import torch
from body import Clock, Device, Items
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader


class Model(LightningModule):
    def __init__(self, lr: float = 0.001):
        super().__init__()
        self.lr, self.net = lr, Device()

    def on_train_start(self):
        self.clock = Clock()

    def training_step(self, items, index):
        self.clock.tick(len(items))
        return (self.net(items) - items.mean(1, keepdim=True) / 97.0).square().mean()

    def on_train_end(self):
        self.clock.stop()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 8, num_workers: int = 0, load_s: float = 0.003):
        super().__init__()
        self.batch_size, self.num_workers, self.load_s = batch_size, num_workers, load_s

    def train_dataloader(self):
        return DataLoader(
            Items(self.load_s), batch_size=self.batch_size, num_workers=self.num_workers
        )


if __name__ == "__main__":
    LightningCLI(Model, Data, save_config_callback=None)
