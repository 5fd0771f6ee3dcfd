"""Overlapping tiles of a raster with voids, each with what the denoiser is told about it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks.workloads.dem_completion.interpolate import Array, distance_to_known, laplace
from benchmarks.workloads.dem_completion.terrain import NODATA

TILE = 32
"""Pixels a side: what the weights were trained on."""
OVERLAP = 8
"""Pixels that tiles of the generated raster share in the shipped config."""
CONDITION_CHANNELS = 3
RESIDUAL_GAIN = 4.0
"""Brings truth minus membrane, in tile standard deviations, to about unit variance."""
RELAXATION_STEPS = 300


def condition(height: Array, void: NDArray[np.bool_]) -> tuple[Array, float, float]:
    """Condition (3, H, W) of a tile, and the offset and spread in metres it was scaled by.

    Channels: membrane over the voids (scaled), void mask, distance to the nearest known pixel.
    """
    known = height[~void] if not void.all() else np.zeros(1, np.float32)
    offset, spread = float(known.mean()), float(known.std()) + 1e-3
    membrane = (laplace(height, void, RELAXATION_STEPS) - offset) / spread
    stack = np.stack([membrane, void, distance_to_known(void) / 8])
    return stack.astype(np.float32), offset, spread


class DemTiles(Dataset[dict[str, Any]]):
    """Tiles of a memory-mapped raster that hold at least one void pixel.

    `count` keeps that many of them, evenly spread; `shard`, as "1/4", every fourth from the second.
    `image_size` is never used: the tile is as large as the weights want it.
    """

    def __init__(
        self,
        raster: Path,
        overlap: int,
        tile: int = TILE,
        count: int | None = None,
        shard: str | None = None,
        image_size: list[int] | None = None,  # noqa: ARG002
    ) -> None:
        self.tile = tile
        self.raster = np.load(raster, mmap_mode="r")
        rows, columns = (_starts(size, tile, overlap) for size in self.raster.shape)
        corners = [(top, left) for top in rows for left in columns]
        self.corners = [c for c in corners if (self._window(c) == NODATA).any()]
        if count is not None and count < len(self.corners):
            spread = np.linspace(0, len(self.corners) - 1, count).round().astype(int)
            self.corners = [self.corners[i] for i in spread]
        if shard is not None:
            first, _, many = shard.partition("/")
            self.corners = self.corners[int(first) :: int(many)]

    def __len__(self) -> int:
        return len(self.corners)

    def __getitem__(self, index: int) -> dict[str, Any]:
        corner = self.corners[index]
        height = np.array(self._window(corner))
        void = height == NODATA
        stack, offset, spread = condition(height, void)
        return {
            "condition": torch.from_numpy(stack),
            "offset": torch.tensor(offset),
            "spread": torch.tensor(spread),
            "corner": torch.tensor(corner),
            "place": corner[0] * self.raster.shape[1] + corner[1],
        }

    def _window(self, corner: tuple[int, int]) -> Array:
        top, left = corner
        return self.raster[top : top + self.tile, left : left + self.tile]


def to_metres(fill: Tensor, batch: dict[str, Any]) -> Tensor:
    """The denoiser's product (B, 1, H, W) as elevation (B, H, W): membrane plus residual."""
    scaled = batch["condition"][:, 0] + fill[:, 0] / RESIDUAL_GAIN
    return scaled * batch["spread"][:, None, None] + batch["offset"][:, None, None]


def _starts(size: int, tile: int, overlap: int) -> list[int]:
    """First pixels of tiles that cover `size` pixels, neighbours sharing at least `overlap`."""
    if size < tile or not 0 <= overlap < tile:
        msg = f"cannot cut {size} pixels into tiles of {tile} with an overlap of {overlap}"
        raise ValueError(msg)
    count = max(1, -(-(size - overlap) // (tile - overlap)))
    return np.linspace(0, size - tile, count).round().astype(int).tolist()
