"""Items, a device and a clock that the programs share.

A sleep stands for the disk and for the device, so that what a setting gains hardly depends on what
else the machine does. `ITEMS` in the environment makes a run short enough for a stopwatch.
"""

import os
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ITEMS = int(os.environ.get("ITEMS", "200000"))
LOAD_S = 0.003
"""One item from the disk."""
LAUNCH_S, ITEM_S = 0.004, 0.0003
"""One call of the device, and each item in it."""


class Items(Dataset):
    """Numbers that take time to load."""

    def __init__(self, load_s: float = LOAD_S, count: int = ITEMS) -> None:
        self.load_s, self.count = load_s, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.load_s)
        return torch.full((8,), float(index % 97))


class Device(nn.Module):
    """A network whose call takes a launch and each item's time, and half of both in bfloat16."""

    def __init__(self, launch_s: float = LAUNCH_S, item_s: float = ITEM_S) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.launch_s, self.item_s = launch_s, item_s

    def forward(self, items: Tensor) -> Tensor:
        half = torch.is_autocast_enabled("cpu")
        time.sleep((self.launch_s + self.item_s * len(items)) * (0.5 if half else 1.0))
        return self.layer(items / 97.0)


class Clock:
    """Items and seconds of all steps, and of the later half of the items.

    All steps hold the start of the workers: a second or two, of runs of five to twenty. The later
    half, up to its last step, has the steady rate, which is what a call measures: the workers'
    end is not in it.
    """

    def __init__(self) -> None:
        self.items, self.began = 0, time.monotonic()
        self.ticks = [(0, self.began)]

    def tick(self, items: int) -> None:
        self.items += items
        self.ticks.append((self.items, time.monotonic()))

    def stop(self) -> None:
        end = time.monotonic()
        half, since = next(each for each in self.ticks if each[0] >= self.items / 2)
        later, seconds = self.items - half, self.ticks[-1][1] - since
        print(
            f"clock {self.items} items {end - self.began:.3f} s, {later} items {seconds:.3f} s",
            flush=True,
        )


def train(batch_size: int, num_workers: int, accumulation: int = 1, load_s: float = LOAD_S) -> None:
    """A training of one pass."""
    fit(DataLoader(Items(load_s), batch_size=batch_size, num_workers=num_workers), accumulation)


def fit(
    loader: DataLoader, accumulation: int = 1, passes: int = 1, model: nn.Module | None = None
) -> None:
    """Train over the items of `loader`."""
    model, clock = model or Device(), Clock()
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for _ in range(passes):
        for number, items in enumerate(loader, 1):
            loss = (model(items) - items.mean(1, keepdim=True) / 97.0).square().mean()
            (loss / accumulation).backward()
            if number % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
            clock.tick(len(items))
    clock.stop()


def predict(batch_size: int, num_workers: int, load_s: float = LOAD_S) -> None:
    """An inference over all items."""
    score(DataLoader(Items(load_s), batch_size=batch_size, num_workers=num_workers))


def score(loader: DataLoader, model: nn.Module | None = None) -> None:
    """Apply a network to the items of `loader`."""
    model, clock, total = (model or Device()).eval(), Clock(), 0.0
    with torch.no_grad():
        for items in loader:
            total += float(model(items).sum())
            clock.tick(len(items))
    clock.stop()
    print(f"sum {total:.3f}")


def texts(count: int) -> Iterator[list[int]]:
    """Token ids whose lengths differ as those of sentences do."""
    generator = torch.Generator().manual_seed(0)
    for length in torch.randn(count, generator=generator).mul(0.8).add(3.2).exp().clamp(4, 200):
        yield torch.randint(5, 1000, (int(length),), generator=generator).tolist()
