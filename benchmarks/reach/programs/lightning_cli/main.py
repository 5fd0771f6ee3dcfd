"""LightningCLI over a table of numbers."""

import lightning as L
import torch
from lightning.pytorch.cli import LightningCLI
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, rows):
        self.x = torch.randn(rows, 30, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        row = self.x[i]
        return row, (row[:3].prod() > 0).long()


class TableData(L.LightningDataModule):
    def __init__(self, batch_size: int = 32, num_workers: int = 0, rows: int = 10000):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str):
        self.train, self.val = torch.utils.data.random_split(Table(self.hparams.rows), [0.9, 0.1])

    def train_dataloader(self):
        hp = self.hparams
        return DataLoader(self.train, hp.batch_size, shuffle=True, num_workers=hp.num_workers)

    def val_dataloader(self):
        return DataLoader(self.val, self.hparams.batch_size, num_workers=self.hparams.num_workers)


class Classifier(L.LightningModule):
    def __init__(self, width: int = 64, learning_rate: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(30, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )
        self.clock = StepClock()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.clock.tick(len(batch[0]))

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self.net(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)


if __name__ == "__main__":
    LightningCLI(Classifier, TableData, save_config_kwargs={"overwrite": True})
