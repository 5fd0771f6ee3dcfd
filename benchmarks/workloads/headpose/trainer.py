"""The training loop. What the loaders run with stands here and nowhere else."""

import time
from pathlib import Path

import torch
from faces import LARGEST_DEG, EpochSampler, HeadPoses
from network import PoseNet
from torch import nn
from torch.utils.data import DataLoader

HELD_OUT = 64
"""The last images of a data set are never trained on."""
LOG_EVERY = 10


class Trainer:
    """Trains a PoseNet on the JPEG files of one folder."""

    def __init__(self, folder: Path, batch_size: int, lr: float, scale: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        size = 48 * scale
        faces = HeadPoses(folder, slice(None, -HELD_OUT), size, seed, augment=True)
        held_out = HeadPoses(folder, slice(-HELD_OUT, None), size, seed, augment=False)
        self.train_loader = DataLoader(
            faces,
            batch_size=batch_size,
            sampler=EpochSampler(len(faces), seed),
            num_workers=0,
            drop_last=True,
        )
        self.val_loader = DataLoader(held_out, batch_size=batch_size, num_workers=0)
        self.model = PoseNet(width=24 * scale).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.criterion = nn.SmoothL1Loss(beta=0.05)

    def train_epoch(self, max_steps: int | None) -> float:
        """Mean loss of one pass over the data."""
        self.model.train()
        total, started = 0.0, time.perf_counter()
        for step, batch in enumerate(self.train_loader):
            if step == max_steps:
                break
            images, angles = (part.to(self.device) for part in batch)
            self.optimizer.zero_grad()
            predicted = self.model(images)
            loss = self.criterion(predicted, angles)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            if (step + 1) % LOG_EVERY == 0:
                seconds = time.perf_counter() - started
                print(f"  step {step + 1}  loss {total / (step + 1):.4f}  {seconds:.1f} s",
                      flush=True)  # fmt: skip
        return total / min(len(self.train_loader), max_steps or len(self.train_loader))

    @torch.no_grad()
    def mean_error_deg(self) -> float:
        """Mean absolute error of the three angles on images that were never trained on."""
        self.model.eval()
        errors = []
        for images, angles in self.val_loader:
            predicted = self.model(images.to(self.device))
            errors.append((predicted.cpu() - angles).abs())
        return LARGEST_DEG * torch.cat(errors).mean().item()
