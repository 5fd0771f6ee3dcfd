"""Generated terrain: known everywhere, so that a fill of its voids can be judged."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.cache import made_once

Array = NDArray[np.float32]

VERSION = 4
"""Part of the name of cached rasters; raise it when what is generated changes."""
NODATA = -9999.0
RELIEF_M = 4.0
VOID_SHARE = 0.2


def spectral_noise(
    rng: np.random.Generator, shape: tuple[int, int], slope: float, longest: float
) -> Array:
    """Gaussian field of unit variance whose amplitude falls as frequency ** -slope.

    Wavelengths above `longest` pixels are as strong as that one.
    """
    fy, fx = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])[None, :]
    amplitude = np.maximum(np.hypot(fy, fx), 1 / longest) ** -slope
    amplitude[0, 0] = 0
    spectrum = np.fft.rfft2(rng.standard_normal(shape)) * amplitude
    field = np.fft.irfft2(spectrum, s=shape)
    return (field / field.std()).astype(np.float32)


def terrain(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Elevation in metres: rolling hills, sharp ridges and valleys, roughness on the slopes."""
    hills = spectral_noise(rng, shape, slope=2.8, longest=160)
    ridges = -np.abs(spectral_noise(rng, shape, slope=2.8, longest=64))
    valleys = np.abs(spectral_noise(rng, shape, slope=2.8, longest=48))
    rough = spectral_noise(rng, shape, slope=1.5, longest=24) * (0.6 + 0.4 * np.tanh(hills))
    height = hills + 0.8 * ridges + 0.5 * valleys + 0.04 * rough
    return (RELIEF_M * (height - height.mean()) / height.std()).astype(np.float32)


def voids(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """True where the survey has no data: shadows and gaps some six pixels wide."""
    field = spectral_noise(rng, shape, slope=2.5, longest=16)
    return field > np.quantile(field, 1 - VOID_SHARE)


def generate(folder: Path, shape: tuple[int, int], seed: int) -> Path:
    """Folder with raster.npy, which has voids, and truth.npy, which has none; generated once."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(seed)
        truth = terrain(rng, shape)
        np.save(folder / "truth.npy", truth)
        np.save(folder / "raster.npy", np.where(voids(rng, shape), np.float32(NODATA), truth))

    return made_once(folder / f"terrain_v{VERSION}_{shape[0]}x{shape[1]}_{seed}", make)
