"""Fills the voids of a digital elevation model by conditional diffusion.

python -m benchmarks.workloads.dem_completion.run -p test -c config/dem_completion.json
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from benchmarks.workloads.cache import cache_dir
from benchmarks.workloads.dem_completion import data, diffusion, options, raster, terrain, train
from benchmarks.workloads.dem_completion.network import Denoiser

GRID = (12, 16)
"""Tiles of the generated raster, down and across, at scale 1."""
THREADS = 1
"""CPU threads that fill tiles. They are too small to gain much from two, which wait for each other:
beside busy neighbours on two cores a step of one tile took 190 ms with two, and 7 ms with one."""
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What the config's `precision` has the network compute in; the walk itself stays in fp32."""


def main(argv: list[str] | None = None) -> None:
    """Trains or fills, as the command line and the config say."""
    opt = options.parse(argv)
    if opt["phase"] == "train":
        train.train(opt)
    else:
        test(opt)


def test(opt: options.Options) -> None:
    """Fills the raster, writes it beside its metrics, and prints them."""
    torch.set_num_threads(THREADS)
    device = choose_device(opt)
    network = opt["model"]["which_networks"][0]["args"]
    denoiser = load_denoiser(opt, device)
    beta = diffusion.betas(**network["beta_schedule"]["test"])

    scale = opt["scale"]
    chosen = dict(opt["datasets"]["test"]["which_dataset"]["args"])
    tile, overlap = data.TILE * scale, chosen.pop("tile_overlap") * scale
    place = generated_raster(scale)
    tiles = data.DemTiles(
        place / "raster.npy",
        overlap,
        tile,
        chosen.pop("tiles", None),
        chosen.pop("shard", None),
        **chosen,
    )
    loader = DataLoader(tiles, **opt["datasets"]["test"]["dataloader"]["args"])

    folder = opt["path"]["experiment"]
    mosaic = raster.Mosaic(tiles.raster.shape, tile, overlap)
    done, started = 0, time.perf_counter()
    for heights, corners in fills(denoiser, loader, beta, opt["seed"], opt["test"]["precision"]):
        mosaic.add(heights, corners)
        done += len(heights)
        print(f"tiles {done}/{len(tiles)}  {time.perf_counter() - started:.1f} s", flush=True)

    height = np.array(tiles.raster)
    void = height == terrain.NODATA
    filled = mosaic.filled(height, void)
    np.save(folder / "completed.npy", filled)
    raster.write_hillshade(folder / "hillshade.png", filled)
    metrics = {"tiles": done, "n_timestep": len(beta)}
    truth = np.load(place / "truth.npy")
    inside = void & mosaic.covered
    metrics["void_rmse_m"] = raster.void_rmse_m(filled, truth, inside)
    metrics["slope_error"] = raster.slope_error(filled, truth, inside)
    print(f"void RMSE: {metrics['void_rmse_m']:.4f} m")
    print(f"slope error: {metrics['slope_error']:.4f}")
    seams = raster.seams(filled, truth, inside, np.array(tiles.corners), tile)
    if seams is not None:
        metrics["seams"] = seams
        print(f"seams: {seams:.4f}")
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    print(f"wrote {folder}")


def fills(
    denoiser: Denoiser, loader: DataLoader, beta: NDArray, seed: int, precision: str
) -> Iterator[tuple[NDArray, NDArray]]:
    """Elevations (B, H, W) and first pixels (B, 2) of every batch of `loader`, filled."""
    device = next(denoiser.parameters()).device
    dtype = PRECISIONS[precision]
    lower = torch.autocast(device.type, dtype, enabled=dtype is not torch.float32)
    for loaded in loader:
        batch = {name: value.to(device, non_blocking=True) for name, value in loaded.items()}
        seeds = [seed * 1_000_003 + place for place in batch["place"].tolist()]
        with torch.inference_mode(), lower:
            fill = diffusion.sample(denoiser, batch["condition"], beta, seeds)
            heights = data.to_metres(fill, batch)
        yield heights.cpu().numpy(), batch["corner"].cpu().numpy()


def choose_device(opt: options.Options) -> torch.device:
    """The first of `gpu_ids`, or the CPU where there is no CUDA."""
    if torch.cuda.is_available():
        return torch.device("cuda", opt["gpu_ids"][0])
    return torch.device("cpu")


def load_denoiser(opt: options.Options, device: torch.device) -> Denoiser:
    """The trained network; random weights at other scales, which load a GPU but fill nothing."""
    unet = dict(opt["model"]["which_networks"][0]["args"]["unet"])
    unet["inner_channel"] *= opt["scale"]
    torch.manual_seed(opt["seed"])
    denoiser = Denoiser(data.CONDITION_CHANNELS, **unet)
    if opt["scale"] == 1:
        state = torch.load(opt["path"]["resume_state"], map_location="cpu", weights_only=True)
        denoiser.load_state_dict(state)
    else:
        print(f"scale {opt['scale']}: random weights, the metrics mean nothing")
    return denoiser.to(device).eval()


def generated_raster(scale: int) -> Path:
    """Folder of the default raster: GRID tiles, and `scale` times as many across."""
    rows, columns = GRID[0], GRID[1] * scale
    overlap = data.OVERLAP * scale
    step = data.TILE * scale - overlap
    shape = rows * step + overlap, columns * step + overlap
    return terrain.generate(cache_dir("dem_completion"), shape, seed=2024)


if __name__ == "__main__":
    main()
