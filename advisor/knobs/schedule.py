"""Noise schedules of fewer steps with the same terminal signal."""

from __future__ import annotations

import math

from advisor.knobs.catalogue import Shape

LARGEST_BETA = 0.999
"""The field's usual cap; beyond it a step keeps nothing of what came before."""

TOLERANCE = 1e-3
"""Largest relative error of the terminal log-signal, after the ends were rounded."""


def log_signal(start: float, end: float, steps: int, shape: Shape = "line") -> float:
    """Log-signal of a schedule: log prod(1 - beta_t).

    Raises ValueError where a beta is outside [0, 1).
    """
    betas = _betas(start, end, steps, shape)
    if not all(0 <= beta < 1 for beta in betas):
        msg = f"a schedule from {start} to {end} has a noise rate outside [0, 1)"
        raise ValueError(msg)
    return math.fsum(math.log1p(-beta) for beta in betas)


def rescaled_schedule(
    start: float, end: float, steps: int, new_steps: int, shape: Shape = "line"
) -> tuple[float, float]:
    """Rescale a schedule's ends to the same terminal signal.

    Rounded to six significant digits, where that keeps the log-signal within TOLERANCE.
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
    ends = start * low, end * low
    rounded = float(f"{ends[0]:.6g}"), float(f"{ends[1]:.6g}")
    kept = abs(log_signal(*rounded, new_steps, shape) / wanted - 1) <= TOLERANCE
    return rounded if kept else ends


def _betas(start: float, end: float, steps: int, shape: Shape) -> list[float]:
    if steps < 2:
        return [start] * steps
    power = 2 if shape == "root-line" else 1
    first, last = start ** (1 / power), end ** (1 / power)
    return [(first + (last - first) * i / (steps - 1)) ** power for i in range(steps)]
