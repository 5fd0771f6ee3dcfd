"""Errors of predictions, in words."""

import statistics
from collections.abc import Sequence

Pair = tuple[float, float]
"""Predicted and published figure."""


def errors(pairs: Sequence[Pair]) -> str:
    """Median and 90th percentile of the relative errors."""
    found = sorted(abs(predicted / figure - 1) for predicted, figure in pairs)
    median, most = statistics.median(found), found[int(0.9 * len(found))]
    return f"median {median:.1%}, 9 in 10 within {most:.1%}"


def ranked(pairs: Sequence[Pair]) -> float:
    """Share of pairs of models whose order is right."""
    both = [(one, other) for at, one in enumerate(pairs) for other in pairs[:at]]
    return statistics.fmean((a[0] > b[0]) == (a[1] > b[1]) for a, b in both)
