"""Windows of fire sequences as training samples, seen through drifting clouds."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from benchmarks.workloads.emberformer.fires import Array, smooth_noise

CHANNELS = 5
"""Of every frame: fire, visible, distance to the front, fuel, and wind along the pixel."""
REACH = 8
BURNING = 0.3


class FireWindows(Dataset[tuple[Tensor, Tensor]]):
    """`frames` maps of a fire in, the burning cells of the next one out.

    A sample is frames (T, CHANNELS, crop, crop) and target (crop, crop). Key k stands for window
    k % len(self) with augmentation k, so an epoch's samples do not depend on batch or workers.
    """

    def __init__(self, folder: Path, frames: int, crop: int, augment: bool) -> None:
        self.maps = np.load(folder / "maps.npy", mmap_mode="r")
        self.fuel = np.load(folder / "fuel.npy", mmap_mode="r")
        self.wind = np.load(folder / "wind.npy")
        self.frames, self.crop, self.augment = frames, crop, augment
        self.windows = self.maps.shape[1] - frames

    def __len__(self) -> int:
        return len(self.maps) * self.windows

    def __getitem__(self, key: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(key)
        fire, first = divmod(key % len(self), self.windows)
        maps = self.maps[fire, first : first + self.frames + 1] / np.float32(255)
        fuel, wind = np.array(self.fuel[fire]), self.wind[fire]
        if self.augment:
            maps, fuel, wind = random_symmetry(rng, maps, fuel, wind)
        spare = fuel.shape[-1] - self.crop
        top, left = rng.integers(0, spare + 1, 2) if self.augment else (spare // 2, spare // 2)
        place = ..., slice(top, top + self.crop), slice(left, left + self.crop)
        return self._features(rng, maps[place], fuel[place], wind)

    def _features(
        self, rng: np.random.Generator, maps: Array, fuel: Array, wind: Array
    ) -> tuple[Tensor, Tensor]:
        past, target = maps[:-1], maps[-1] > BURNING
        visible = smooth_noise(rng, past.shape, longest=12) < 1.2
        seen = past * visible
        axis = np.linspace(-1, 1, self.crop, dtype=np.float32)
        drift = wind[0] * axis[:, None] + wind[1] * axis[None, :]
        still = np.broadcast_to(np.stack([fuel, drift]), (self.frames, 2, *fuel.shape))
        moving = np.stack([seen, visible, distance_to_front(seen)], axis=1)
        frames = np.concatenate([moving, still], axis=1, dtype=np.float32)
        return torch.from_numpy(frames), torch.from_numpy(target.astype(np.float32))


class EpochSampler(Sampler[int]):
    """A new order and new augmentation keys every epoch, the same for every batch size."""

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.seed, self.epoch = length, seed, 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length)
        yield from (self.epoch * self.length + order).tolist()
        self.epoch += 1


def random_symmetry(
    rng: np.random.Generator, maps: Array, fuel: Array, wind: Array
) -> tuple[Array, Array, Array]:
    """One of the eight turns and mirrorings of the square; the wind turns with the land."""
    for _ in range(rng.integers(4)):
        maps, fuel = np.rot90(maps, axes=(-2, -1)), np.rot90(fuel, axes=(-2, -1))
        wind = np.array([-wind[1], wind[0]], np.float32)
    if rng.integers(2):
        maps, fuel = maps[..., ::-1], fuel[..., ::-1]
        wind = np.array([wind[0], -wind[1]], np.float32)
    return maps, fuel, wind


def distance_to_front(maps: Array) -> Array:
    """Steps (of 8 neighbours) to the nearest burning cell over REACH, at most 1; (T, H, W)."""
    reached = maps > BURNING
    distance = np.where(reached, 0, REACH).astype(np.float32)
    for step in range(1, REACH):
        wide = np.pad(reached, ((0, 0), (1, 1), (1, 1)))
        tall = wide[:, :-2] | wide[:, 1:-1] | wide[:, 2:]
        grown = tall[..., :-2] | tall[..., 1:-1] | tall[..., 2:]
        distance[grown & ~reached] = step
        reached = grown
    return distance / REACH
