"""Runs to intervals: pure functions, standard library only.

The unit is always the process: one value a process, or one log ratio a pair of processes.
Windows inside a process are never a sample.

Bounds come from the exact null distribution of Wilcoxon's signed-rank statistic over the Walsh
averages (x_i + x_j) / 2, i <= j; they assume values that are independent and symmetric about
their centre, not that they are normal. Too few values give the honest answer: (-inf, inf).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import cache, lru_cache

from advisor.model import Interval

ALPHA = 0.025
"""Chance that one bound of a comparison is wrong."""
PAIR_GAP_PER_SIGMA = 0.9539
"""Median distance of two normal draws, in standard deviations."""
RANK_SHARE = 0.75
"""Share of `ALPHA` for the ranks of all runs, where the pairs are too few for ranks."""


@cache
def signed_rank_counts(n: int) -> tuple[int, ...]:
    """Counts of the subsets of {1 ... n}, by sum.

    Divided by 2**n this is the exact null distribution of the signed-rank statistic W+.
    """
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    return tuple(counts)


@cache
def signed_rank_rank(n: int, alpha: float) -> int:
    """Largest k with P(W+ < k) <= alpha.

    For n pairs; 0 means n pairs can decide nothing. The k-th smallest Walsh average is then a lower
    bound of the centre, wrong with probability alpha at most.
    """
    allowed = alpha * 2**n
    below = 0
    for k, count in enumerate(signed_rank_counts(n)):
        below += count  # P(W+ < k + 1) * 2**n
        if below > allowed:
            return k
    return len(signed_rank_counts(n)) - 1


def fewest_pairs(alpha: float) -> int:
    """Fewest pairs with finite bounds at `alpha` a side."""
    return max(1, math.ceil(-math.log2(alpha)))


@cache
def pairs_that_outlive(outliers: int, alpha: float) -> int:
    """Fewest pairs whose bounds outlive the outliers.

    However far out these lie, the bounds at `alpha` a side stay among the other pairs.
    """
    n = fewest_pairs(alpha)
    while outliers * n - outliers * (outliers - 1) // 2 >= signed_rank_rank(n, alpha):
        n += 1
    return n


def walsh_averages(values: Sequence[float]) -> list[float]:
    """Walsh averages (x_i + x_j) / 2, ascending."""
    return sorted((x + y) / 2 for i, x in enumerate(values) for y in values[i:])


def walsh_interval(values: Sequence[float], alpha: float) -> Interval:
    """Hodges-Lehmann estimate with exact bounds.

    Each bound is wrong with `alpha` at most. `values` are on an additive scale (log ratios). Raises
    ValueError if there are none, or if one is not finite.
    """
    _require_finite(values)
    return interval_of(walsh_averages(values), len(values), alpha)


def interval_of(averages: Sequence[float], n: int, alpha: float) -> Interval:
    """Interval from the ascending Walsh averages.

    They are those of n values, so several `alpha` can share them.
    """
    k = signed_rank_rank(n, alpha)
    return Interval(
        estimate=statistics.median(averages),
        low=averages[k - 1] if k else -math.inf,
        high=averages[-k] if k else math.inf,
        n=n,
        confidence=1 - 2 * alpha,
    )


@cache
def rank_sum_counts(one: int, other: int) -> tuple[int, ...]:
    """Counts of two samples' orders, by U.

    Mann and Whitney's U goes from 0 to one * other. Divided by their sum this is the exact null
    distribution of U.
    """
    if not one or not other:
        return (1,)
    without_last, with_last = rank_sum_counts(one, other - 1), rank_sum_counts(one - 1, other)
    counts = [0] * (one * other + 1)
    for u, count in enumerate(without_last):
        counts[u] += count
    for u, count in enumerate(with_last):
        counts[u + other] += count
    return tuple(counts)


def rank_sum_rank(one: int, other: int, alpha: float) -> tuple[int, float]:
    """Largest k with P(U < k) <= alpha, and that probability."""
    counts = rank_sum_counts(one, other)
    orders, below, k = sum(counts), 0, 0
    for count in counts:
        if below + count > alpha * orders * (1 + 1e-12):
            break
        below += count
        k += 1
    return k, below / orders


def two_sample_interval(one: Sequence[float], other: Sequence[float], alpha: float) -> Interval:
    """Shift of `one` above `other`, with rank bounds.

    They are exact at `alpha` a side. The bounds hold if both are drawn from one shape; they are
    infinite where values are too few.
    """
    shifts = sorted(a - b for a in one for b in other)
    k, _ = rank_sum_rank(len(one), len(other), alpha)
    return Interval(
        estimate=statistics.median(shifts),
        low=shifts[k - 1] if k else -math.inf,
        high=shifts[-k] if k else math.inf,
        n=min(len(one), len(other)),
        confidence=1 - 2 * alpha,
    )


def paired_interval(
    ratios: Sequence[float], *, sigma_at_least: float = 0.0, known_sigma: float = 0.0
) -> Interval:
    """Centre of log ratios of rounds, with bounds.

    Exact from six rounds on, below that Student's. Student's spread is never taken to be less than
    `sigma_at_least` or `known_sigma`: a few rounds can agree by luck. One ratio has infinite
    bounds. Raises ValueError as `walsh_interval`.
    """
    if len(ratios) >= fewest_pairs(ALPHA):
        return walsh_interval(ratios, ALPHA)
    return t_interval(ratios, ALPHA, sigma_at_least=sigma_at_least, known_sigma=known_sigma)


def comparison_interval(
    ratios: Sequence[float],
    reference: Sequence[float],
    candidate: Sequence[float],
    alpha: float = ALPHA,
    *,
    sigma_at_least: float = 0.0,
    known_sigma: float = 0.0,
) -> Interval:
    """Paired interval, narrowed by the ranks of all runs.

    `reference` and `candidate` are the logs of all runs of each arm that did not choose it. The two
    methods share `alpha`; what the ranks cannot use goes to the pairs. So an outlier in favour of
    the candidate cannot widen the bound against it.
    """
    n = len(ratios)
    exact = n >= fewest_pairs(alpha)
    for_pairs = max(alpha / 2, 2.0**-n) if exact else (1 - RANK_SHARE) * alpha
    _, used = rank_sum_rank(len(candidate), len(reference), alpha - for_pairs)
    ranks = two_sample_interval(candidate, reference, used)
    left = max(alpha - used, for_pairs)
    known = {"sigma_at_least": sigma_at_least, "known_sigma": known_sigma}
    pairs = walsh_interval(ratios, left) if exact else t_interval(ratios, left, **known)
    low, high = max(ranks.low, pairs.low), min(ranks.high, pairs.high)
    return Interval(
        estimate=estimate_inside(low, high, pairs.estimate, ranks.estimate),
        low=low,
        high=high,
        n=n,
        confidence=1 - 2 * alpha,
    )


def estimate_inside(low: float, high: float, *estimates: float) -> float:
    """First estimate strictly inside the bounds, else their middle.

    Bounds may come from another sample than an estimate, which then stands for nothing.
    """
    found = (*estimates, (low + high) / 2)
    return next((each for each in found if low < each < high), estimates[0])


def median_gap(*groups: Sequence[float]) -> float:
    """Median distance of two values of one group."""
    return statistics.median(abs(a - b) for g in groups for a, b in itertools.combinations(g, 2))


def noise_band(groups: Sequence[Sequence[float]]) -> float | None:
    """Relative spread between equal processes.

    A group holds the window rates of one process. Twice the standard deviation of one process's
    rate: two runs of the same thing differ by less in about five cases of six. The spread inside
    processes (standard error over windows, the worst process counts) is a floor, because two
    processes can agree by luck. None if neither can be had: a single process with fewer than two
    windows.
    """
    logs = _logs_of(groups, at_least=1)
    spreads = [statistics.stdev(g) / math.sqrt(len(g)) for g in logs if len(g) > 1]
    if len(logs) > 1:
        gap = median_gap([statistics.fmean(group) for group in logs])
        few = 1 + 0.5 / len(logs)  # its bias
        spreads.append(gap / PAIR_GAP_PER_SIGMA / few)
    return math.expm1(2 * max(spreads)) if spreads else None


def _logs_of(groups: Sequence[Sequence[float]], *, at_least: int) -> list[list[float]]:
    logs = ([math.log(rate) for rate in group if rate > 0] for group in groups)
    return [group for group in logs if len(group) >= at_least]


def pooled_band(groups: Sequence[Sequence[float]]) -> float | None:
    """Noise band of pooled groups of equal processes.

    A process that collapsed does not move it. None where no group has two.
    """
    logs = _logs_of(groups, at_least=2)
    return math.expm1(2 * median_gap(*logs) / PAIR_GAP_PER_SIGMA) if logs else None


def t_interval(
    values: Sequence[float],
    alpha: float = 0.025,
    *,
    sigma_at_least: float = 0.0,
    known_sigma: float = 0.0,
) -> Interval:
    """Mean with Student bounds at `alpha` a side.

    They hold if the values are normal. For samples too small for the exact bounds. `known_sigma` is
    a standard deviation that was measured elsewhere (0: none was) and counts as one more degree of
    freedom; the spread is never taken to be less than it or than `sigma_at_least`. Raises
    ValueError as `walsh_interval`.
    """
    _require_finite(values)
    n = len(values)
    mean = statistics.fmean(values)
    half = math.inf
    if n > 1:
        degrees, variance = n - 1, statistics.variance(values)
        if known_sigma:
            variance = (degrees * variance + known_sigma**2) / (degrees + 1)
            degrees += 1
        sigma = max(math.sqrt(variance), known_sigma, sigma_at_least)
        half = t_quantile(1 - alpha, degrees) * sigma / math.sqrt(n)
    return Interval(estimate=mean, low=mean - half, high=mean + half, n=n, confidence=1 - 2 * alpha)


@lru_cache(maxsize=1024)
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t.

    `degrees` >= 1, for a probability in (0, 1).
    """
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while _t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0, by finite sums.

    The sums over cos(theta) hold for whole degrees of freedom.
    """
    theta = math.atan2(t, math.sqrt(degrees))
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
