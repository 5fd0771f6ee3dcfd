"""Drawn heads as JPEG files with their angles, and the data set that reads and distorts them."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch.utils.data import Dataset, Sampler

VERSION = 1
"""Part of the name of a cached data set; raise it when what is drawn changes."""
COUNTS = {"biwi": 384, "300wlp": 1536}
"""Images of the two data sets, the small and the large one."""
SIDE = 160
"""Pixels of a stored image; the network sees smaller ones."""
LARGEST_DEG = 60.0
JITTER = 0.3


class HeadPoses(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A JPEG file in, pixels (3, size, size) in [-1, 1] and (yaw, pitch, roll) / 60 degrees out.

    Key k is image k % len(self) with distortion k, so an epoch does not depend on batch or workers.
    """

    def __init__(self, folder: Path, part: slice, size: int, seed: int, augment: bool) -> None:
        angles = json.loads((folder / "angles.json").read_text())
        self.files = [folder / name for name in sorted(angles)[part]]
        self.angles = [angles[file.name] for file in self.files]
        self.size, self.seed, self.augment = size, seed, augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, key: int) -> tuple[torch.Tensor, torch.Tensor]:
        index = key % len(self)
        angles = torch.tensor(self.angles[index]) / LARGEST_DEG
        with Image.open(self.files[index]) as file:
            image = file.convert("RGB")
        if self.augment:
            rng = np.random.default_rng((self.seed, key))
            image = color_jitter(image, rng)
            if rng.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                angles = angles * torch.tensor([-1.0, 1.0, -1.0])
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return pixels / 127.5 - 1, angles


class EpochSampler(Sampler[int]):
    """A new order and new keys every epoch."""

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.seed, self.epoch = length, seed, 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length)
        yield from (self.epoch * self.length + order).tolist()
        self.epoch += 1


def color_jitter(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Brightness, contrast, saturation and hue, each by up to JITTER, at the image's own size."""
    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = change(image).enhance(rng.uniform(1 - JITTER, 1 + JITTER))
    hue, saturation, value = image.convert("HSV").split()
    turn = int(rng.uniform(-JITTER, JITTER) * 64)
    hue = hue.point([(level + turn) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def dataset(name: str, root: Path, seed: int) -> Path:
    """Folder with the JPEG files of data set `name` and `angles.json`; drawn once."""
    folder = root / f"{name}_v{VERSION}_{seed}"
    if folder.exists():
        return folder
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    angles = {}
    for number in range(COUNTS[name]):
        pose = rng.uniform(-LARGEST_DEG, LARGEST_DEG, 3)
        file = f"{number:05d}.jpg"
        Image.fromarray(head(rng, *pose)).save(partial / file, quality=90)
        angles[file] = [round(float(angle), 3) for angle in pose]
    (partial / "angles.json").write_text(json.dumps(angles))
    try:
        partial.rename(folder)
    except OSError:  # another run was first
        shutil.rmtree(partial)
    return folder


def head(rng: np.random.Generator, yaw: float, pitch: float, roll: float) -> np.ndarray:
    """One head (SIDE, SIDE, 3) in bytes: an ellipsoid, its eyes, nose and mouth turned with it."""
    axis = np.linspace(-1.3, 1.3, SIDE, dtype=np.float32)
    x, y = np.meshgrid(axis, axis)
    depth = 1 - (x / 0.78) ** 2 - y**2
    face = depth > 0
    light = np.sqrt(np.maximum(depth, 0))
    coarse = rng.uniform(40, 200, (8, 8, 3)).astype(np.uint8)
    image = np.array(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    skin = rng.uniform((150, 100, 80), (230, 180, 150))
    image[face] = np.clip(skin * (0.4 + 0.6 * light[face, None]), 0, 255)
    turn = rotation(yaw, pitch, roll)
    for place, radius, level in FEATURES:
        left, up, front = turn @ np.array(place)
        if front > 0:  # on the side that is seen
            spot = (x - 0.78 * left) ** 2 + (y - up) ** 2 < radius**2
            image[spot] = level
    noise = rng.normal(0, 6, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


FEATURES = (
    ((-0.4, -0.3, 0.85), 0.12, 30),
    ((0.4, -0.3, 0.85), 0.12, 30),
    ((0.0, 0.1, 1.0), 0.09, 245),
    ((0.0, 0.5, 0.85), 0.14, 90),
)
"""Place on the unit head (right, down, front), radius and grey of each mark."""


def rotation(yaw: float, pitch: float, roll: float) -> np.ndarray:
    """Matrix (3, 3) that turns the head; degrees."""
    a, b, c = np.deg2rad([yaw, pitch, roll])
    about_y = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    about_z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    return about_z @ about_x @ about_y
