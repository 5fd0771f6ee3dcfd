"""Trains the denoiser on generated terrain: python -m ...dem_completion.run -p train -c CONFIG."""

import copy
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.workloads.dem_completion import data, diffusion, terrain
from benchmarks.workloads.dem_completion.network import Denoiser

RASTER = 512
LOG_EVERY = 100


def train(opt: dict[str, Any]) -> None:
    """Writes the averaged weights to `weights.pt` in this run's directory."""
    network = opt["model"]["which_networks"][0]["args"]
    torch.manual_seed(opt["seed"])
    started = time.perf_counter()
    tiles = training_tiles(**opt["datasets"]["train"]["which_dataset"]["args"])
    print(f"{len(tiles)} training tiles  {time.perf_counter() - started:.0f} s", flush=True)
    loader = DataLoader(tiles, **opt["datasets"]["train"]["dataloader"]["args"])

    denoiser = Denoiser(data.CONDITION_CHANNELS, **network["unet"])
    denoiser.train().to(memory_format=torch.channels_last)
    averaged = copy.deepcopy(denoiser)
    optimizer = torch.optim.AdamW(
        denoiser.parameters(), **opt["model"]["which_model"]["args"]["optimizers"][0]
    )
    total = opt["train"]["n_iter"]
    decay = opt["model"]["which_model"]["args"]["ema_scheduler"]["ema_decay"]
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=optimizer.param_groups[0]["lr"], total_steps=total, pct_start=0.05
    )
    levels = torch.from_numpy(
        diffusion.signal_levels(diffusion.betas(**network["beta_schedule"]["train"]))
    ).float()

    step, running = 0, []
    while step < total:
        for condition, residual in loader:
            loss = training_loss(denoiser, levels, *random_symmetry(condition, residual))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            warm = min(decay, (1 + step) / (10 + step))
            with torch.no_grad():
                for slow, fast in zip(averaged.parameters(), denoiser.parameters(), strict=True):
                    slow.lerp_(fast, 1 - warm)
            running.append(loss.item())
            step += 1
            if step % LOG_EVERY == 0 or step == total:
                mean = sum(running) / len(running)
                print(f"step {step}/{total}  loss {mean:.4f}  "
                      f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
                running = []
                torch.save(averaged.state_dict(), opt["path"]["experiment"] / "weights.pt")
            if step == total:
                break


def training_loss(
    denoiser: Denoiser, levels: Tensor, condition: Tensor, residual: Tensor
) -> Tensor:
    """Mean squared error of the velocity inside the voids, at random noise levels."""
    void = condition[:, 1:2]
    # Squared: texture is made at low noise, where the schedule spends few of its steps.
    upper = 1 + ((len(levels) - 1) * torch.rand(len(residual)) ** 2).long()
    mix = torch.rand(len(residual))
    gamma = levels[upper - 1] * mix + levels[upper] * (1 - mix)
    noise = torch.randn_like(residual)
    noisy, velocity = diffusion.velocity_target(residual, noise, gamma[:, None, None, None])
    predicted = denoiser(noisy * void, condition, gamma)
    return ((predicted - velocity) ** 2 * void).sum() / void.sum()


def training_tiles(count: int, seed: int) -> TensorDataset:
    """`count` random tiles of generated rasters: conditions, and residuals to be found."""
    rng = np.random.default_rng(seed)
    conditions, residuals = [], []
    shape = (RASTER, RASTER)
    while len(conditions) < count:
        truth, void = terrain.terrain(rng, shape), terrain.voids(rng, shape)
        for _ in range(128):
            top, left = rng.integers(0, RASTER - data.TILE, 2)
            place = slice(top, top + data.TILE), slice(left, left + data.TILE)
            if not 0.02 < void[place].mean() < 0.9:
                continue
            stack, offset, spread = data.condition(
                np.where(void[place], np.float32(terrain.NODATA), truth[place]), void[place]
            )
            residual = (truth[place] - offset) / spread - stack[0]
            conditions.append(torch.from_numpy(stack))
            residuals.append(torch.from_numpy(residual[None] * data.RESIDUAL_GAIN))
    return TensorDataset(torch.stack(conditions[:count]), torch.stack(residuals[:count]).float())


def random_symmetry(*images: Tensor) -> list[Tensor]:
    """One of the eight turns and mirrorings of the square, the same for all of `images`."""
    turns, mirrored = int(torch.randint(4, ())), bool(torch.randint(2, ()))
    turned = [image.rot90(turns, (2, 3)) for image in images]
    return [image.flip(3) if mirrored else image for image in turned]
