"""One figure over equal runs: nothing is told from one draw."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from advisor import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.model import Run


FEWEST = 2
"""Runs, of which something is told."""


def ranged(
    runs: Sequence[Run],
    figure: Callable[[Run], float | None],
    shown: Callable[[float], str],
) -> str:
    """`41 % (40 % to 43 %, 2 runs)`; `not measured` where a run does not say."""
    values = [value for run in runs if (value := figure(run)) is not None]
    if len(values) < len(runs) or not values:
        return numbers.NOT_MEASURED
    bounds = f"{shown(min(values))} to {shown(max(values))}, {len(values)} runs"
    return f"{shown(statistics.fmean(values))} ({bounds})"


def mean(values: Sequence[float | None]) -> float | None:
    """None where one of them was not measured."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None
