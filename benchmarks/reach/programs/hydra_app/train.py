"""python train.py data.loader.batch_size=64 trainer.lr=3e-4"""

import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tables(Dataset):
    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        x = torch.randn(self.columns, generator=torch.Generator().manual_seed(index))
        return (x - x.mean()) / x.std(), x[:2].sum()


def build(cfg, columns):
    widths = [columns, *[cfg.hidden] * cfg.depth]
    layers = [m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1))


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    print(OmegaConf.to_yaml(cfg))
    torch.manual_seed(cfg.seed)
    loader = DataLoader(Tables(cfg.data.rows, cfg.data.columns), **cfg.data.loader)
    model = build(cfg.model, cfg.data.columns)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.trainer.lr)
    clock = StepClock()
    for epoch in range(cfg.trainer.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            clock.tick(len(x))
        print(f"epoch {epoch} loss {total / len(loader):.4f}")
        torch.save(model.state_dict(), f"epoch_{epoch}.pt")


if __name__ == "__main__":
    main()
