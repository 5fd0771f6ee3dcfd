"""Forward noise and the reverse walk from noise to a fill, for any schedule of betas."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CLIP = 4.0
"""Fills beyond this many standard deviations do not occur."""


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

    Each tile starts from noise of its own seed, and the walk from there is deterministic (DDIM,
    eta 0). So a fill depends neither on its batch nor, but for the step size, on the number of
    steps: equal seeds give comparable fills.

    The noise of a state is told by the clipped fill. By the fill before clipping, the state would
    not be the mixture that the network was trained on, and a thousand steps diverge.
    """
    gamma = signal_levels(beta)
    before = np.append(1.0, gamma[:-1])
    signal, hidden = np.sqrt(gamma).tolist(), np.sqrt(1 - gamma).tolist()
    next_signal, next_hidden = np.sqrt(before).tolist(), np.sqrt(1 - before).tolist()
    void = condition[:, 1:2]
    fill = _noise(seeds, void) * void
    for step in reversed(range(len(beta))):
        level = torch.full((len(fill),), gamma[step], dtype=fill.dtype, device=fill.device)
        velocity = denoiser(fill, condition, level)
        clean = (signal[step] * fill - hidden[step] * velocity).clamp_(-CLIP, CLIP) * void
        noise = (fill - signal[step] * clean) / hidden[step]
        fill = next_signal[step] * clean + next_hidden[step] * noise
    return fill


def _noise(seeds: list[int], like: Tensor) -> Tensor:
    """Standard normal, shaped as `like`, from one generator a tile."""
    generators = (torch.Generator(like.device).manual_seed(seed) for seed in seeds)
    shape, device = like.shape[1:], like.device
    return torch.stack([torch.randn(shape, generator=g, device=device) for g in generators])
