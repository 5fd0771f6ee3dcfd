"""From tiles back to a raster, how good it is, and a picture of it."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.workloads.dem_completion.interpolate import Array, Mask


class Mosaic:
    """Blends overlapping tiles; where tiles meet, each fades out towards its edge."""

    def __init__(self, shape: tuple[int, int], tile: int, overlap: int) -> None:
        self.total = np.zeros(shape)
        self.weights = np.zeros(shape)
        edge = np.minimum(np.arange(tile), np.arange(tile)[::-1]) + 1
        ramp = np.minimum(edge / (overlap + 1), 1)
        self.fade = np.outer(ramp, ramp)

    def add(self, heights: Array, corners: NDArray[np.int64]) -> None:
        """Adds tiles (B, H, W) whose first pixels are `corners` (B, 2)."""
        size = len(self.fade)
        for height, (top, left) in zip(heights, corners, strict=True):
            place = slice(top, top + size), slice(left, left + size)
            self.total[place] += self.fade * height
            self.weights[place] += self.fade

    @property
    def covered(self) -> Mask:
        """Pixels that some tile has reached."""
        return self.weights > 0

    def filled(self, height: Array, void: Mask) -> Array:
        """`height` with its covered voids filled; known pixels stay as they are."""
        blended = self.total / np.where(self.covered, self.weights, 1)
        return np.where(void & self.covered, blended, height).astype(np.float32)


def slopes(height: Array, inside: Mask) -> Array:
    """Steepness (metres a pixel) of every pixel whose right and lower neighbours are inside too."""
    whole = inside[:-1, :-1] & inside[1:, :-1] & inside[:-1, 1:]
    steep = np.hypot(np.diff(height, axis=0)[:, :-1], np.diff(height, axis=1)[:-1])
    return steep[whole]


def void_rmse_m(filled: Array, truth: Array, inside: Mask) -> float:
    """Root mean square error inside the voids, in metres."""
    return float(np.sqrt(np.mean((filled[inside] - truth[inside]) ** 2)))


def slope_error(filled: Array, truth: Array, inside: Mask) -> float:
    """How far the distribution of slopes inside the voids is from the truth's.

    Mean distance between equal quantiles over the true mean slope: 0 for the right texture, and
    larger for a fill that is too smooth or too rough, however small its RMSE.
    """
    ours, true = np.sort(slopes(filled, inside)), np.sort(slopes(truth, inside))
    return float(np.abs(ours - true).mean() / true.mean())


def write_hillshade(path: Path, height: Array) -> None:
    """Grey PNG lit from the north-west."""
    dy, dx = np.gradient(height)
    light = (1 + dx + dy) / np.sqrt(3 * (1 + dx**2 + dy**2))
    grey = (255 * light.clip(0, 1)).astype(np.uint8)
    rows = np.pad(grey, ((0, 0), (1, 0))).tobytes()
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, body in chunks:
            file.write(struct.pack(">I", len(body)) + kind + body)
            file.write(struct.pack(">I", zlib.crc32(kind + body)))
