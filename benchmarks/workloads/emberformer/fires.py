"""Generated wildfires: cells that burn, spread with the wind and burn out."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.cache import cache_dir, made_once

Array = NDArray[np.float32]

VERSION = 2
"""Part of the name of cached fires; raise it when what is generated changes."""
STEPS = 12
"""Maps recorded of each fire."""
WARM_UP = 4
"""Steps before recording, so that every fire has a front."""
BURN_DECAY = 0.7


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], longest: float) -> Array:
    """Gaussian fields (..., H, W) of unit variance with features of about `longest` cells."""
    fy, fx = np.fft.fftfreq(shape[-2])[:, None], np.fft.rfftfreq(shape[-1])[None, :]
    keep = np.exp(-((np.hypot(fy, fx) * longest) ** 2))
    field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal(shape)) * keep, s=shape[-2:])
    return (field / field.std()).astype(np.float32)


def simulate(rng: np.random.Generator, wind: Array, size: int) -> tuple[Array, Array]:
    """Fire maps (N, STEPS, size, size) and fuel (N, size, size), both in [0, 1].

    A cell catches fire with a chance that grows with its fuel and with burning neighbours up
    wind of it. `wind` (N, 2) blows (down, right); the edges are firebreaks.
    """
    count = len(wind)
    fuel = 1 / (1 + np.exp(-2 * smooth_noise(rng, (count, size, size), longest=10)))
    heat = np.zeros((count, size, size))
    start = rng.integers(size // 4, size - size // 4, (count, 3, 2))
    for row, column in start.transpose(1, 2, 0):
        heat[np.arange(count), row, column] = 1
    unburnt = heat == 0
    maps = []
    for step in range(WARM_UP + STEPS):
        exposure = np.zeros_like(heat)
        padded = np.pad(heat, ((0, 0), (1, 1), (1, 1)))
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                push = np.exp(wind @ np.array([down, right], float))[:, None, None]
                exposure += (
                    push * padded[:, 1 - down : size + 1 - down, 1 - right : size + 1 - right]
                )
        caught = unburnt & (rng.random(heat.shape) < 1 - np.exp(-0.5 * fuel * exposure))
        unburnt &= ~caught
        heat = np.where(caught, 1.0, BURN_DECAY * heat)
        if step >= WARM_UP:
            maps.append(heat.astype(np.float32))
    return np.stack(maps, axis=1), fuel.astype(np.float32)


def dataset(count: int, size: int, seed: int) -> Path:
    """Folder with maps.npy (8 bit), fuel.npy and wind.npy; generated once."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(seed)
        wind = rng.normal(0, 0.7, (count, 2)).astype(np.float32)
        maps, fuel = simulate(rng, wind, size)
        np.save(folder / "maps.npy", (255 * maps).astype(np.uint8))
        np.save(folder / "fuel.npy", fuel)
        np.save(folder / "wind.npy", wind)

    return made_once(cache_dir("emberformer") / f"fires_v{VERSION}_{count}x{size}_{seed}", make)
