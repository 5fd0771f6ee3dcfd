"""What the fill is worth, and what it costs: the tables of benchmarks/workloads/README.md.

python -m benchmarks.workloads.dem_completion.study -c config/dem_completion.json [--tiles N]
python -m benchmarks.workloads.dem_completion.study -c config/dem_completion.json --overlaps
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

from benchmarks.workloads.dem_completion import data, diffusion, interpolate, options, raster
from benchmarks.workloads.dem_completion.run import fills, generated_raster, load_denoiser
from benchmarks.workloads.dem_completion.terrain import NODATA, truth_path

STEPS = (1000, 500, 250, 100, 50, 25, 10)
BATCHES = (1, 2, 4, 8, 16, 32)
OVERLAPS = (0, 8, 12, 16, 24, 32)
STEPS_OF_OVERLAPS = 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="study")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("--tiles", type=int, help="only this many tiles, evenly spread")
    parser.add_argument("--seeds", type=int, default=1, help="fills of each row")
    parser.add_argument("--overlaps", action="store_true", help="only what the overlap buys")
    args = parser.parse_args()
    opt = options.load_config(args.config) | {"scale": 1}
    overlap = opt["datasets"]["test"]["which_dataset"]["args"]["tile_overlap"]
    if args.overlaps:
        overlaps(opt, args.seeds)
        return
    tiles = data.DemTiles(generated_raster(1), overlap, count=args.tiles)
    speed(opt, tiles)
    quality(opt, tiles, overlap, args.seeds)


def speed(opt: options.Options, tiles: data.DemTiles) -> None:
    """Fastest forward, and tiles a second of the fastest reverse walk, by batch."""
    started = time.perf_counter()
    loaded = [tiles[index] for index in range(min(len(tiles), 16))]
    print(f"loading a tile: {(time.perf_counter() - started) / len(loaded) * 1e3:.1f} ms")
    denoiser = load_denoiser(opt, torch.device("cpu"))
    print("\nbatch  forward ms  tiles/s at 1000 steps")
    for batch in BATCHES:
        items = [loaded[place % len(loaded)] for place in range(batch)]
        stack = default_collate(items)["condition"]
        beta = diffusion.betas("linear", 100, 1e-4, 0.6)
        with torch.inference_mode():
            level = torch.full((batch,), 0.5)
            forwards = [seconds(lambda: denoiser(stack[:, :1], stack, level)) for _ in range(40)]  # noqa: B023
            walks = [seconds(lambda: diffusion.sample(denoiser, stack, beta, [0] * batch))  # noqa: B023
                     for _ in range(3)]  # fmt: skip
        rate = batch / min(walks) / 10
        print(f"{batch:5}  {min(forwards) * 1e3:10.2f}  {rate:8.3f}", flush=True)


def quality(opt: options.Options, tiles: data.DemTiles, overlap: int, seeds: int) -> None:
    """Void RMSE and slope error of classic fills, and of the denoiser by number of steps."""
    height = np.array(tiles.raster)
    void = height == NODATA
    truth = np.load(truth_path(Path(tiles.raster.filename)))
    reached = raster.Mosaic(height.shape, data.TILE, overlap)
    for corner in tiles.corners:
        reached.add(np.zeros((1, data.TILE, data.TILE)), np.array([corner]))
    inside = void & reached.covered
    print("\nfill               void RMSE m  slope error  seconds")
    for name, fill in (
        ("bilinear", interpolate.bilinear(height, void)),
        ("laplace", interpolate.laplace(height, void, iterations=3000)),
    ):
        show(name, fill, truth, inside)
    schedule = opt["model"]["which_networks"][0]["args"]["beta_schedule"]["test"]
    denoiser = load_denoiser(opt, torch.device("cpu"))
    for steps in STEPS:
        beta = diffusion.betas(**rescaled(schedule, steps))
        for seed in range(opt["seed"], opt["seed"] + seeds):
            started = time.perf_counter()
            mosaic = raster.Mosaic(height.shape, data.TILE, overlap)
            for heights, corners in fills(denoiser, DataLoader(tiles, batch_size=8), beta, seed):
                mosaic.add(heights, corners)
            spent = time.perf_counter() - started
            show(
                f"{steps} steps, to {beta[-1]:.4f}",
                mosaic.filled(height, void),
                truth,
                inside,
                spent,
            )


def overlaps(opt: options.Options, seeds: int) -> None:
    """Tiles, time and seams of the whole raster, by how much neighbouring tiles share."""
    path = generated_raster(1)
    height, truth = np.load(path), np.load(truth_path(path))
    void = height == NODATA
    schedule = opt["model"]["which_networks"][0]["args"]["beta_schedule"]["test"]
    beta = diffusion.betas(**rescaled(schedule, STEPS_OF_OVERLAPS))
    denoiser = load_denoiser(opt, torch.device("cpu"))
    print(f"{STEPS_OF_OVERLAPS} steps\noverlap  tiles  void RMSE m  slope error  seams  seconds")
    for overlap in OVERLAPS:
        tiles = data.DemTiles(path, overlap)
        for seed in range(opt["seed"], opt["seed"] + seeds):
            started = time.perf_counter()
            mosaic = raster.Mosaic(height.shape, data.TILE, overlap)
            for heights, corners in fills(denoiser, DataLoader(tiles, batch_size=8), beta, seed):
                mosaic.add(heights, corners)
            spent, filled = time.perf_counter() - started, mosaic.filled(height, void)
            rmse = raster.void_rmse_m(filled, truth, void)
            slope = raster.slope_error(filled, truth, void)
            seams = raster.seams(filled, truth, void, np.array(tiles.corners), data.TILE) or 0.0
            print(
                f"{overlap:7}  {len(tiles):5}  {rmse:11.4f}  {slope:11.4f}  {seams:5.3f}  "
                f"{spent:7.1f}",
                flush=True,
            )


def rescaled(schedule: dict[str, Any], steps: int) -> dict[str, Any]:
    """The schedule with `steps` steps and the `linear_end` that leaves the same signal at the end.

    Where no end below one does, the largest one.
    """
    wanted = diffusion.signal_levels(diffusion.betas(**schedule))[-1]
    low, high = schedule["linear_start"], 1 - 1e-6
    for _ in range(60):
        middle = (low + high) / 2
        trial = schedule | {"n_timestep": steps, "linear_end": middle}
        if diffusion.signal_levels(diffusion.betas(**trial))[-1] > wanted:
            low = middle
        else:
            high = middle
    return schedule | {"n_timestep": steps, "linear_end": high}


def show(name: str, fill: Any, truth: Any, inside: Any, spent: float | None = None) -> None:
    rmse, slope = raster.void_rmse_m(fill, truth, inside), raster.slope_error(fill, truth, inside)
    print(
        f"{name:20} {rmse:9.4f}  {slope:11.4f}" + (f"  {spent:7.1f}" if spent else ""), flush=True
    )


def seconds(call: Any) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
