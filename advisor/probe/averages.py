"""Median, quantile, mode; `statistics` would cost every Python that starts ten milliseconds."""

from __future__ import annotations

import math
from typing import Sequence


def median(values: Sequence[float]) -> float:
    """Middle of `values`, which must not be empty."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def not_above(values: Sequence[float], share: float) -> float:
    """The smallest of `values`, which must not be empty, that so large a share does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def most_common(values: Sequence[float]) -> float | None:
    """The value that occurs most often, the first of them at a tie; None for no values."""
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return max(counts, key=lambda value: counts[value]) if counts else None
