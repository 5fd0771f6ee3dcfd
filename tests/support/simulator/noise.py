"""Time, noise and neighbours of a machine that is imagined, with truths that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import JsonScalar

if TYPE_CHECKING:
    import random

Values = Mapping[str, JsonScalar]
"""Settings in force by the last word of their path: `batch_size`."""


class VirtualClock:
    """Seconds that pass only when something takes time."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """Seconds so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += max(0.0, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What makes equal processes differ."""

    between: float = 0.0
    """Relative standard deviation between processes."""
    collapse: float = 0.0
    """Share of processes that run at a tenth of their rate."""

    def factor(self, rng: random.Random) -> float:
        """Factor on the rate of one process."""
        factor = math.exp(rng.gauss(0.0, self.between))
        return 0.1 * factor if rng.random() < self.collapse else factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Another program that comes with some processes, whatever the time, and goes with them."""

    held: Callable[[int, Values], float | None]
    """CPUs that it keeps busy beside a process; None: the host does not tell."""
    slowed: float = 1.0
    """How much longer a run takes for each of those CPUs."""
