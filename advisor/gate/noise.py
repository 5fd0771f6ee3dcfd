"""What the runs of one arm among themselves say about this runner."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def spread_between_processes(log_rates: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of one process's log rate, from runs that should be equal.

    Each sequence holds runs of one arm at one slot (first or second of their pair), in order of
    time. Only neighbours are compared, so slow drift and the effect of the slot cancel. None if no
    sequence has two runs.
    """
    steps = [b - a for runs in log_rates for a, b in itertools.pairwise(runs)]
    if not steps:
        return None
    return math.sqrt(sum(step * step for step in steps) / len(steps) / 2)


def modes(log_rates: Sequence[float]) -> tuple[float, float] | None:
    """Centres of two clearly separate groups of runs, slow and fast; None if there is one group.

    The split that leaves least variance inside the groups counts if the centres lie five of the
    remaining standard deviations and at least 2 % apart, and the smaller group holds two runs and
    a tenth of them all.
    """
    runs = sorted(log_rates)
    smallest = max(2, math.ceil(len(runs) / 10))
    splits = range(smallest, len(runs) - smallest + 1)
    if len(runs) < 8 or not splits:
        return None

    middle = statistics.fmean(runs)
    around = [run - middle for run in runs]
    below = [0.0, *itertools.accumulate(around)]
    whole = sum(value * value for value in around)

    def inside(cut: int) -> float:
        rest = below[-1] - below[cut]
        return whole - below[cut] ** 2 / cut - rest**2 / (len(runs) - cut)

    best = min(splits, key=inside)
    slow, fast = statistics.fmean(runs[:best]), statistics.fmean(runs[best:])
    deviation = math.sqrt(max(0.0, inside(best)) / (len(runs) - 2))
    return (slow, fast) if fast - slow > max(5 * deviation, 0.02) else None
