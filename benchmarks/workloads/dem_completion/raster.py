"""From tiles back to a raster, how good it is, and a picture of it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

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


def void_rmse_m(filled: Array, truth: Array, inside: Mask) -> float:
    """Root mean square error inside the voids, in metres."""
    return float(np.sqrt(np.mean((filled[inside] - truth[inside]) ** 2)))


def slope_error(filled: Array, truth: Array, inside: Mask) -> float:
    """How wrong the texture inside the voids is, whatever the RMSE.

    Mean relative error of two slope statistics: how steep the ground is from one pixel to the
    next, and how much the slope itself changes there. 0 for the right texture; a fill that is too
    smooth or too rough is punished, a detail in the wrong place is not.
    """
    ours, true = slope_statistics(filled, inside), slope_statistics(truth, inside)
    return float(np.mean(np.abs(ours / true - 1)))


def seams(
    filled: Array, truth: Array, inside: Mask, corners: NDArray[np.int64], tile: int
) -> float | None:
    """How many times as far the error steps across the edges of tiles (first pixels `corners`,
    (N, 2)) as it does elsewhere inside the voids: 1 where no seam shows.

    None where no edge lies inside a void.
    """
    error = np.where(inside, filled - truth, 0)
    across, elsewhere = [], []
    for axis in (0, 1):
        steps = np.abs(np.diff(error, axis=axis))
        both = inside[1:] & inside[:-1] if axis == 0 else inside[:, 1:] & inside[:, :-1]
        edge = np.zeros_like(both)
        for corner in corners:
            along = slice(corner[1 - axis], corner[1 - axis] + tile)
            for at in (corner[axis] - 1, corner[axis] + tile - 1):
                if 0 <= at < edge.shape[axis]:
                    edge[(at, along) if axis == 0 else (along, at)] = True
        across.append(steps[both & edge])
        elsewhere.append(steps[both & ~edge])
    if not sum(map(len, across)) or not sum(map(len, elsewhere)):
        return None
    return float(np.concatenate(across).mean() / np.concatenate(elsewhere).mean())


def slope_statistics(height: Array, inside: Mask) -> NDArray[np.float64]:
    """Mean slope (m per pixel) and mean change of slope (m per pixel squared).

    Only of pixels whose four neighbours are inside too.
    """
    centre = inside[1:-1, 1:-1]
    left, right = inside[1:-1, :-2], inside[1:-1, 2:]
    whole = centre & left & right & inside[:-2, 1:-1] & inside[2:, 1:-1]
    east, south = np.diff(height, axis=1)[1:-1], np.diff(height, axis=0)[:, 1:-1]
    slope = np.hypot(east[:, 1:], south[1:])
    change = np.abs(np.diff(east, axis=1) + np.diff(south, axis=0))
    return np.array([slope[whole].mean(), change[whole].mean()], np.float64)


def write_hillshade(path: Path, height: Array) -> None:
    """Grey PNG lit from the north-west."""
    dy, dx = np.gradient(height)
    light = (1 + dx + dy) / np.sqrt(3 * (1 + dx**2 + dy**2))
    grey = (255 * light.clip(0, 1)).astype(np.uint8)
    Image.fromarray(grey).save(path)
