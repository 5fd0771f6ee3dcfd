"""Noise schedules: how much signal is left at the end, and how to keep that with fewer steps.

A diffusion sampler of T steps with noise rates beta_1..beta_T leaves prod(1 - beta_t) of the
signal's variance at its last step. A model trained with one terminal signal samples badly from
another, so steps and schedule ends move together.
"""

from __future__ import annotations

import math
from typing import Literal

Shape = Literal["line", "root-line"]

LARGEST_BETA = 0.999
"""The field's usual cap; beyond it a step keeps nothing of what came before."""

TOLERANCE = 1e-3
"""Largest relative error of the terminal log-signal, after the ends were rounded."""


def log_signal(start: float, end: float, steps: int, shape: Shape = "line") -> float:
    """log prod(1 - beta_t). Raises ValueError where a beta is outside [0, 1)."""
    betas = _betas(start, end, steps, shape)
    if not all(0 <= beta < 1 for beta in betas):
        msg = f"a schedule from {start} to {end} has a noise rate outside [0, 1)"
        raise ValueError(msg)
    return math.fsum(math.log1p(-beta) for beta in betas)


def rescaled(
    start: float, end: float, steps: int, new_steps: int, shape: Shape = "line"
) -> tuple[float, float]:
    """Both ends times one factor, so that `new_steps` leave the same terminal signal.

    Rounded to six significant digits, or as few more as keep the log-signal within TOLERANCE.
    Raises ValueError, with the numbers, where no noise rate up to LARGEST_BETA does.
    """
    wanted = log_signal(start, end, steps, shape)
    if wanted == 0:
        msg = f"a schedule from {start} to {end} adds no noise"
        raise ValueError(msg)
    low, high = 0.0, LARGEST_BETA / max(start, end)
    reached = log_signal(start * high, end * high, new_steps, shape)
    if reached > wanted:
        msg = (
            f"{new_steps} steps cannot reach the terminal signal {math.exp(wanted):.3g} of "
            f"{steps} steps from {start:g} to {end:g}: even a last noise rate of {LARGEST_BETA} "
            f"leaves {math.exp(reached):.3g}"
        )
        raise ValueError(msg)
    for _ in range(200):
        middle = (low + high) / 2
        if log_signal(start * middle, end * middle, new_steps, shape) > wanted:
            low = middle
        else:
            high = middle
    for digits in range(6, 18):
        ends = (_rounded(start * low, digits), _rounded(end * low, digits))
        if abs(log_signal(*ends, new_steps, shape) / wanted - 1) <= TOLERANCE:
            return ends
    msg = f"no rounding of the ends keeps the terminal signal {math.exp(wanted):.3g}"
    raise ValueError(msg)


def _betas(start: float, end: float, steps: int, shape: Shape) -> list[float]:
    if steps < 2:
        return [start] * steps
    power = 2 if shape == "root-line" else 1
    first, last = start ** (1 / power), end ** (1 / power)
    return [(first + (last - first) * i / (steps - 1)) ** power for i in range(steps)]


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
