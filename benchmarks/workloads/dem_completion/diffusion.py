"""Forward noise and the reverse walk from noise to a fill, for any schedule of betas."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CLIP = 4.0
"""Fills beyond this many standard deviations do not occur."""
_NOISE_BLOCK = 25
"""Steps whose noise is drawn at once; part of the result, as it orders the random numbers."""


def betas(schedule: str, n_timestep: int, linear_start: float, linear_end: float) -> NDArray:
    """Noise added by each of `n_timestep` steps."""
    if schedule != "linear":
        msg = f"schedule {schedule!r} is not known; this program has: linear"
        raise ValueError(msg)
    return np.linspace(linear_start, linear_end, n_timestep, dtype=np.float64)


def signal_levels(beta: NDArray) -> NDArray:
    """gamma after each step: the share of the signal's variance that is left."""
    return np.cumprod(1 - beta)


def velocity_target(clean: Tensor, noise: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Noisy input and the velocity to be learned, at gamma (B, 1, 1, 1)."""
    noisy = gamma.sqrt() * clean + (1 - gamma).sqrt() * noise
    return noisy, gamma.sqrt() * noise - (1 - gamma).sqrt() * clean


def sample(denoiser: torch.nn.Module, condition: Tensor, beta: NDArray, seeds: list[int]) -> Tensor:
    """Fills (B, 1, H, W) for `condition` (B, C, H, W), whose channel 1 is the void mask.

    Each tile has noise of its own seed, so its fill does not depend on its batch.
    """
    gamma = signal_levels(beta)
    before = np.append(1.0, gamma[:-1])
    # Posterior of the previous state given this one and the clean fill.
    clean_share = (np.sqrt(before) * beta / (1 - gamma)).tolist()
    noisy_share = (np.sqrt(1 - beta) * (1 - before) / (1 - gamma)).tolist()
    sigma = np.sqrt(beta * (1 - before) / (1 - gamma)).tolist()
    signal, hidden = np.sqrt(gamma).tolist(), np.sqrt(1 - gamma).tolist()
    void = condition[:, 1:2]
    noise = _noise(seeds, len(beta), void)
    fill = next(noise) * void
    for step in reversed(range(len(beta))):
        level = torch.full((len(fill),), gamma[step], dtype=fill.dtype, device=fill.device)
        velocity = denoiser(fill, condition, level)
        clean = signal[step] * fill - hidden[step] * velocity
        clean = clean.clamp_(-CLIP, CLIP)
        fill = clean_share[step] * clean + noisy_share[step] * fill
        if step:
            fill += sigma[step] * next(noise)
        fill *= void
    return fill


def _noise(seeds: list[int], steps: int, like: Tensor) -> Iterator[Tensor]:
    """Standard normal (B, 1, H, W), `steps` times, from one generator a tile."""
    generators = [torch.Generator(like.device).manual_seed(seed) for seed in seeds]
    shape = (_NOISE_BLOCK, *like.shape[1:])
    for start in range(0, steps, _NOISE_BLOCK):
        tiles = [torch.randn(shape, generator=g, device=like.device) for g in generators]
        yield from torch.stack(tiles, dim=1)[: steps - start]
