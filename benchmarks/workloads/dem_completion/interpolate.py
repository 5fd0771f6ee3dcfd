"""Classic void fills: what the denoiser starts from, and what it must beat."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]


def distance_to_known(void: Mask) -> Array:
    """Euclidean distance in pixels of every pixel to the nearest known one; 0 if all are void."""
    height, width = void.shape
    if void.all():
        return np.zeros(void.shape, np.float32)
    far = height + width
    row = np.arange(height)[:, None]
    above = np.maximum.accumulate(np.where(void, -far, row), axis=0)
    below = np.minimum.accumulate(np.where(void, height + far, row)[::-1], axis=0)[::-1]
    within_column = np.minimum(row - above, below - row).astype(np.float32) ** 2
    column = np.arange(width, dtype=np.float32)
    across = (column[:, None] - column[None, :]) ** 2
    return np.sqrt(np.stack([(across + squared).min(axis=1) for squared in within_column]))


def bilinear(height: Array, void: Mask) -> Array:
    """Linear interpolation along rows and columns; the line whose rim is nearer weighs more."""
    total, weights = np.zeros(height.shape), np.zeros(height.shape)
    for axis in (0, 1):
        lines, gaps = (np.moveaxis(array, axis, 1) for array in (height, void))
        filled, weight = (np.moveaxis(array, axis, 1) for array in (total, weights))
        for row in range(len(lines)):
            known = np.flatnonzero(~gaps[row])
            missing = np.flatnonzero(gaps[row])
            if not len(known) or not len(missing):
                continue
            after = np.searchsorted(known, missing)
            left = known[np.maximum(after - 1, 0)]
            right = known[np.minimum(after, len(known) - 1)]
            near = 1 / np.minimum(abs(missing - left), abs(right - missing))
            filled[row, missing] += near * np.interp(missing, known, lines[row, known])
            weight[row, missing] += near
    mean = height[~void].mean() if not void.all() else 0.0
    between = np.divide(total, weights, out=np.full(height.shape, mean), where=weights > 0)
    return np.where(void, between, height).astype(np.float32)


def laplace(height: Array, void: Mask, iterations: int) -> Array:
    """Smooth membrane over the voids: Jacobi relaxation started from `bilinear`."""
    filled = bilinear(height, void)
    padded = np.pad(filled, 1, mode="edge")
    centre = padded[1:-1, 1:-1]
    for _ in range(iterations):
        mean = padded[:-2, 1:-1] + padded[2:, 1:-1]
        mean += padded[1:-1, :-2]
        mean += padded[1:-1, 2:]
        mean *= 0.25
        np.copyto(centre, mean, where=void)
        padded[0], padded[-1] = padded[1], padded[-2]
        padded[:, 0], padded[:, -1] = padded[:, 1], padded[:, -2]
    return centre.copy()
