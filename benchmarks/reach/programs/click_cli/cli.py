"""Train or apply a segmentation network."""

import click
import numpy as np
import torch
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Discs(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        y, x = np.mgrid[: self.size, : self.size]
        mask = np.zeros((self.size, self.size), bool)
        for _ in range(4):
            cy, cx, r = rng.uniform(0, self.size, 2).tolist() + [rng.uniform(2, 8)]
            mask |= (y - cy) ** 2 + (x - cx) ** 2 < r * r
        image = mask * 0.7 + rng.normal(0, 0.3, mask.shape)
        return torch.from_numpy(image[None]).float(), torch.from_numpy(mask[None]).float()


def network():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
        nn.Conv2d(12, 1, 1),
    )  # fmt: skip


@click.group()
@click.option("--seed", default=0, show_default=True)
def cli(seed):
    torch.manual_seed(seed)


@cli.command()
@click.option("--size", default=40, show_default=True, help="Side of the images.")
@click.option("--batch-size", default=4, show_default=True, help="Images of one step.")
@click.option("--num-workers", "-j", default=0, show_default=True, help="Loader processes.")
@click.option("--epochs", default=100)
@click.option("--lr", default=1e-3, type=float)
@click.argument("output", type=click.Path())
def train(size, batch_size, num_workers, epochs, lr, output):
    """Train and write the weights to OUTPUT."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loader = DataLoader(Discs(8000, size), batch_size, shuffle=True, num_workers=num_workers)
    clock = StepClock()
    for epoch in range(epochs):
        for image, mask in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(image), mask)
            loss.backward()
            optimizer.step()
            clock.tick(len(image))
        click.echo(f"epoch {epoch} loss {loss.item():.4f}")
        torch.save(model.state_dict(), output)


@cli.command()
@click.option("--size", default=40)
@click.option("--batch-size", default=2, show_default=True)
@click.option("--num-workers", "-j", default=0)
@click.argument("folder", type=click.Path())
def apply(size, batch_size, num_workers, folder):
    """Write a mask for each image to FOLDER."""
    import os

    os.makedirs(folder, exist_ok=True)
    model, clock, done = network().eval(), StepClock(), 0
    with torch.inference_mode():
        for image, _ in DataLoader(Discs(50000, size), batch_size, num_workers=num_workers):
            for mask in model(image).gt(0).numpy():
                np.save(os.path.join(folder, f"{done:05d}.npy"), mask)
                done += 1
            clock.tick(len(image))


if __name__ == "__main__":
    cli()
