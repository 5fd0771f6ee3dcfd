"""Generated portraits of various sizes, with their truth: a lit head before a background."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.workloads.cache import cache_dir, made_once

Array = NDArray[np.float32]

VERSION = 2
"""Part of the name of cached portraits; raise it when what is generated changes."""
SIDES = (48, 56, 64, 72, 80)
"""Pixels of a side, at scale 1: neighbours in a list are rarely of one size."""
AMBIENT = 0.25


@dataclass(frozen=True, slots=True)
class Portrait:
    """One image and what is true of it; values in [0, 1]."""

    image: Array
    """(H, W, 3)"""
    mask: Array
    """(H, W): 1 on the person."""
    albedo: Array
    """(H, W, 3): its colour in even light."""
    shading: Array
    """(H, W): the light that falls on the person."""


def portrait(rng: np.random.Generator, scale: int = 1) -> Portrait:
    """A person of random place, colour and light."""
    height, width = rng.choice(SIDES, 2) * scale
    down, right = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)  # type: ignore[misc]
    head, head_normals = ellipsoid(
        down - rng.uniform(-0.35, -0.05), right - rng.uniform(-0.25, 0.25),
        rng.uniform(0.35, 0.5), rng.uniform(0.26, 0.38),
    )  # fmt: skip
    body, body_normals = ellipsoid(
        down - 1.05, right - rng.uniform(-0.2, 0.2), rng.uniform(0.5, 0.8), rng.uniform(0.55, 0.9)
    )
    mask = np.maximum(head, body)
    normals = np.where(head[..., None] > 0, head_normals, body_normals)
    light = rng.normal(size=3) * (1, 1, 0.4)
    light[2] = abs(light[2]) + 0.3
    lambert = np.clip(normals @ (light / np.linalg.norm(light)), 0, 1)
    shading = (AMBIENT + (1 - AMBIENT) * lambert).astype(np.float32)
    skin, cloth = rng.uniform(0.35, 0.95, (2, 3))
    person = np.where(head[..., None] > 0, skin, cloth) * texture(rng, down, right, 0.1)
    behind = rng.uniform(0.1, 0.9, 3) * texture(rng, down, right, 0.45)
    image = np.where(mask[..., None] > 0, person * shading[..., None], behind)
    image = np.clip(image + rng.normal(0, 0.02, image.shape), 0, 1)
    return Portrait(
        image.astype(np.float32),
        mask,
        np.clip(person, 0, 1).astype(np.float32),
        shading * mask,
    )


def ellipsoid(down: Array, right: Array, tall: float, wide: float) -> tuple[Array, Array]:
    """Mask (H, W) and surface normals (H, W, 3) of an ellipsoid in the middle, seen from ahead."""
    y, x = down / tall, right / wide
    inside = x**2 + y**2 < 1
    z = np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))
    normals = np.stack([x, y, z], axis=-1).astype(np.float32)
    return inside.astype(np.float32), normals


def texture(rng: np.random.Generator, down: Array, right: Array, depth: float) -> Array:
    """A smooth pattern (H, W, 1) about 1."""
    wave = np.zeros_like(down)
    for _ in range(3):
        fy, fx, phase = rng.uniform(2, 9), rng.uniform(2, 9), rng.uniform(0, 6.3)
        wave += np.sin(fy * down + fx * right + phase)
    return (1 + depth * wave / 3)[..., None]


def read(path: Path) -> Array:
    """An image file as (H, W, 3) in [0, 1]."""
    with Image.open(path) as file:
        return np.asarray(file.convert("RGB"), np.float32) / 255


def write(path: Path, image: Array) -> None:
    """(H, W, 3) or (H, W) in [0, 1] as an image file."""
    bytes_ = (255 * np.clip(image, 0, 1)).astype(np.uint8)
    Image.fromarray(bytes_).save(path)


def truth_path(path: Path) -> Path:
    """Where the true mask of a generated portrait lies."""
    return path.with_suffix(".mask.png")


def dataset(count: int, scale: int, seed: int) -> Path:
    """A CSV with one `path` a row, beside its portraits and their masks; generated once."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(seed)
        names = [f"{number:05d}.jpg" for number in range(count)]
        for name in names:
            person = portrait(rng, scale)
            write(folder / name, person.image)
            write(truth_path(folder / name), person.mask)
        with (folder / "images.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["path"])
            rows.writerows([name] for name in names)

    name = f"portraits_v{VERSION}_{count}x{scale}_{seed}"
    return made_once(cache_dir("relighting") / name, make) / "images.csv"


def listed(table: Path) -> list[Path]:
    """The images that a CSV names in its column `path`, relative to its folder."""
    with table.open(newline="") as file:
        return [table.parent / row["path"] for row in csv.DictReader(file)]
