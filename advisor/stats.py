"""Runs to intervals: pure functions, standard library only.

A value stands for a process, or a log ratio for a pair; windows are never a sample.

Exact bounds of Wilcoxon's signed-rank statistic on Walsh averages (x_i + x_j) / 2, i <= j.
Values must be independent and symmetric, not normal. Too few give (-inf, inf).
"""

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

from advisor.model import Interval

ALPHA = 0.025
"""Chance that one bound of a comparison is wrong."""
FEWEST_PAIRS = math.ceil(-math.log2(ALPHA))
"""Fewest pairs with finite bounds."""
PAIR_GAP_PER_SIGMA = 0.9539
"""Median distance of two normal draws, in standard deviations."""
ANGLES = range(1 << 50)
ANGLE = math.pi / 2 / len(ANGLES)
"""Angles from zero to a right one, to look up quantiles."""
RANK_SHARE = 0.75
"""Share of `ALPHA` for the ranks of all runs, if pairs are too few for ranks."""


@cache
def signed_rank_counts(n: int) -> tuple[int, ...]:
    """Exact null distribution of the signed-rank statistic W+, times 2**n."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    return tuple(counts)


def rank_in(counts: Sequence[int], alpha: float) -> tuple[int, float]:
    """Largest k with P(X < k) <= alpha, and that probability; `counts` of X = 0, 1 ..."""
    total, below, k = sum(counts), 0, 0
    while k < len(counts) and below + counts[k] <= alpha * total * (1 + 1e-12):
        below += counts[k]
        k += 1
    return k, below / total


def pairs_that_outlive(outliers: int) -> int:
    """Fewest pairs whose bounds stay among the others, wherever the outliers lie."""
    n = FEWEST_PAIRS
    counted_twice = outliers * (outliers - 1) // 2
    while outliers * n - counted_twice >= rank_in(signed_rank_counts(n), ALPHA)[0]:
        n += 1
    return n


def walsh_interval(values: Sequence[float], alpha: float) -> Interval:
    """Hodges-Lehmann estimate with exact bounds at `alpha` a side. Raises ValueError."""
    _require_finite(values)
    n = len(values)
    averages = sorted((x + y) / 2 for i, x in enumerate(values) for y in values[i:])
    k, _ = rank_in(signed_rank_counts(n), alpha)
    return _bounded(averages, k, n)


def _bounded(ascending: Sequence[float], k: int, n: int) -> Interval:
    """Median, between the k-th value from below and from above."""
    low, high = (ascending[k - 1], ascending[-k]) if k else (-math.inf, math.inf)
    return Interval(estimate=statistics.median(ascending), low=low, high=high, n=n)


@cache
def rank_sum_counts(one: int, other: int) -> tuple[int, ...]:
    """Counts of two samples' orders by Mann and Whitney's U: its null distribution."""
    if not one or not other:
        return (1,)
    without_last, with_last = (
        rank_sum_counts(one, other - 1),
        rank_sum_counts(one - 1, other),
    )
    shifted = (*[0] * other, *with_last)
    return tuple(map(sum, itertools.zip_longest(without_last, shifted, fillvalue=0)))


def two_sample_interval(
    one: Sequence[float], other: Sequence[float], alpha: float
) -> Interval:
    """Shift of `one` above `other` with exact bounds, if both have one shape."""
    shifts = sorted(a - b for a in one for b in other)
    k, _ = rank_in(rank_sum_counts(len(one), len(other)), alpha)
    return _bounded(shifts, k, min(len(one), len(other)))


def paired_interval(
    ratios: Sequence[float], alpha: float = ALPHA, *, sigma: float = 0.0
) -> Interval:
    """Centre of log ratios: exact bounds from six rounds on, below that Student's."""
    if len(ratios) >= FEWEST_PAIRS:
        return walsh_interval(ratios, alpha)
    return t_interval(ratios, alpha, sigma=sigma)


def comparison_interval(
    ratios: Sequence[float],
    reference: Sequence[float],
    candidate: Sequence[float],
    *,
    sigma: float = 0.0,
) -> Interval:
    """Paired interval, narrowed by the ranks of all runs.

    `reference`, `candidate`: logs of all runs that did not choose their arm. Both methods
    share `ALPHA`, so no outlier in favour of the candidate widens the bound against it.
    """
    n = len(ratios)
    for_pairs = (1 - RANK_SHARE) * ALPHA
    if n >= FEWEST_PAIRS:
        for_pairs = max(ALPHA / 2, 2.0**-n)
    _, used = rank_in(rank_sum_counts(len(candidate), len(reference)), ALPHA - for_pairs)
    ranks = two_sample_interval(candidate, reference, used)
    pairs = paired_interval(ratios, max(ALPHA - used, for_pairs), sigma=sigma)
    low, high = max(ranks.low, pairs.low), min(ranks.high, pairs.high)
    estimate = estimate_inside(low, high, pairs.estimate, ranks.estimate)
    return Interval(estimate=estimate, low=low, high=high, n=n)


def estimate_inside(low: float, high: float, *estimates: float) -> float:
    """First estimate strictly inside the bounds, else their middle."""
    found = (*estimates, (low + high) / 2)
    return next((each for each in found if low < each < high), estimates[0])


BY_LUCK = 4
"""Fewer processes may agree by luck."""


def noise_band(groups: Sequence[Sequence[float]]) -> float | None:
    """Relative spread between equal processes.

    A group holds the window rates of one process. The result is twice the standard
    deviation of a process's rate: five of six pairs of equal runs differ by less. Few
    processes may agree by luck; the spread inside the worst is their floor.
    """
    logs = [
        logs for group in groups if (logs := [math.log(rate) for rate in group if rate > 0])
    ]
    floor = [statistics.stdev(g) / math.sqrt(len(g)) for g in logs if len(g) > 1]
    spreads = floor if len(logs) < BY_LUCK else []
    if len(logs) > 1:
        means = [statistics.fmean(group) for group in logs]
        gap = statistics.median(abs(a - b) for a, b in itertools.combinations(means, 2))
        few = 1 + 0.5 / len(logs)  # its bias
        spreads.append(gap / PAIR_GAP_PER_SIGMA / few)
    return math.expm1(2 * max(spreads)) if spreads else None


def t_interval(
    values: Sequence[float], alpha: float = ALPHA, *, sigma: float = 0.0
) -> Interval:
    """Mean with Student bounds at `alpha` a side.

    They hold for normal values. `sigma`: a standard deviation measured elsewhere (0: none),
    one more degree of freedom and the least spread: few values can agree by luck.
    """
    _require_finite(values)
    n = len(values)
    mean = statistics.fmean(values)
    half = math.inf
    if n > 1:
        degrees, variance = n - 1, statistics.variance(values)
        if sigma:
            variance = (degrees * variance + sigma**2) / (degrees + 1)
            degrees += 1
        spread = max(math.sqrt(variance), sigma)
        half = t_quantile(1 - alpha, degrees) * spread / math.sqrt(n)
    return Interval(estimate=mean, low=mean - half, high=mean + half, n=n)


@cache
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t with `degrees` >= 1, for a probability in [0.5, 1)."""
    theta = ANGLE * bisect_left(
        ANGLES, probability, key=lambda n: _t_cdf(ANGLE * n, degrees)
    )
    return math.sqrt(degrees) * math.tan(theta)


def _t_cdf(theta: float, degrees: int) -> float:
    """P(T <= t) for tan(theta) = t / sqrt(degrees) >= 0, by finite sums."""
    cos2 = math.cos(theta) ** 2
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0 if degrees == 1 else term
    for j in range(3 if odd else 2, degrees - 1, 2):
        term *= cos2 * (j - 1) / j
        total += term
    if odd:
        return 0.5 + (theta + math.sin(theta) * total) / math.pi
    return 0.5 + math.sin(theta) * total / 2


def _require_finite(values: Sequence[float]) -> None:
    if not values or not all(map(math.isfinite, values)):
        msg = f"an interval takes finite values, not {list(values)}"
        raise ValueError(msg)
