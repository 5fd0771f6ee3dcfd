"""Median, quantile and mode of short lists."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["median", "most_common", "quantile"]


def quantile(values: Sequence[float], share: float) -> float:
    """Quantile of non-empty `values`."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def most_common(values: Iterable[float]) -> float | None:
    """Most frequent value, or None."""
    counts = Counter(values)
    return counts.most_common(1)[0][0] if counts else None
