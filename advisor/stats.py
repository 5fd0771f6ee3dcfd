"""Runs to intervals: pure functions, standard library only.

A value stands for a process, or a log ratio for a pair; windows are never a sample.

Method of a comparison (`comparison_interval`), by the number of rounds:

- From six rounds on: exact bounds of Wilcoxon's signed ranks over the rounds' log ratios, by
  their Walsh averages (x_i + x_j) / 2, i <= j (Hollander and Wolfe, *Nonparametric Statistical
  Methods*, 3.1 and 3.3). Assumed: independent rounds whose ratios scatter symmetrically, not
  that they are normal. A round's arms may scatter unequally.
- Below six: Welch's bounds, with a spread and degrees of freedom of each arm (Welch,
  *Biometrika* 34, 1947). Student's bounds of the ratios assume as much and have half of the
  degrees; a pooled spread assumes equal arms, which a candidate with workers is not. `sigma`,
  a spread measured elsewhere, is the least spread and no degree of freedom.
- Up to six: Mann and Whitney's bounds on the ranks of all runs may widen the others, with
  and without the runs outside the rounds. They assume arms of one shape, so they never
  narrow: few runs that agree by luck tell no spread, and the farthest run still counts.
- Of two rounds: wider by a mode of a host (`MODE`). Four runs cannot tell a gain from two
  fast runs beside two slow ones, however narrow they are.

The farther bound of all that apply is taken, on each side. `python -m benchmarks.bounds` plays
this in simulated worlds of unequal arms: its record is what these choices rest on.
"""

import itertools
import math
import operator
import statistics
from collections.abc import Sequence
from functools import cache

from advisor.model import Interval

ALPHA = 0.025
"""Chance that one bound of a reported interval is wrong.

Judgement, as two of them leave the usual 95 %: smaller needs more rounds (`FEWEST_PAIRS`), larger
writes gains of chance."""
FEWEST_PAIRS = math.ceil(-math.log2(ALPHA))
"""Fewest pairs with finite bounds."""
COMPARED_ALPHA = ALPHA / 2
"""Chance that one bound of one comparison is wrong.

A search compares its best candidate twice if the first comparison leaves it open, and both
together keep to `ALPHA`. Six rounds reach 1.6 % at least: there the ranks of all runs help."""
RANKED_BELOW = FEWEST_PAIRS + 1
"""Rounds from which the ranks of all runs no longer widen a comparison.

Six rounds bound a gain by the worst of them, and two comparisons of a noisy arm were then wrongly
proven in up to 1.4 % of calls, with ranks in 0.7 % (`benchmarks.bounds`). More rounds reach
`COMPARED_ALPHA` without ranks, to which a host that drifts is noise."""
FEWEST_TO_TELL_MODES = 3
"""Rounds from which a gain is told from modes of the host.

Where half of the runs are slow, two rounds and two baselines are all slow before and all fast
after in 1.6 % of calls, three rounds in 0.4 %."""
TWO_ROUNDS_ALPHA = 0.05
"""Level of Welch's bounds of two rounds, before a mode widens them.

One or two degrees of freedom are so few that `COMPARED_ALPHA` would double what the mode does.
`benchmarks.bounds --rounds 2`: at 5 % the lower bound was wrong in one of 90 cells, in 0.4 % of its
calls. Of 2x on a quiet host 95 % are proven, and 41 % at `COMPARED_ALPHA`."""
MODE = 1.6
"""Largest ratio of the rates of two modes that two rounds are not to take for a gain.

Chosen above the farthest modes that `benchmarks.bounds` plays, 1.54 times apart; a run at less
than half the others' speed counts as collapsed."""
PAIR_GAP_PER_SIGMA = 0.9539
"""Median distance of two normal draws, in standard deviations: sqrt(2) times the upper quartile."""
HALVINGS = 50
"""Halvings of a right angle, after which the angle of a quantile is known to 2e-15."""


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
    """Fewest pairs of a comparison whose bounds outlive the outliers, wherever they lie."""
    n = FEWEST_PAIRS
    counted_twice = outliers * (outliers - 1) // 2
    while outliers * n - counted_twice >= rank_in(signed_rank_counts(n), COMPARED_ALPHA)[0]:
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
    one: Sequence[float], other: Sequence[float], alpha: float, *, fewest: int = 0
) -> Interval:
    """Shift of `one` above `other` with exact bounds, if both have one shape.

    Too few values give (-inf, inf), or with `fewest` 1 the farthest shifts, which promise less.
    """
    shifts = sorted(a - b for a in one for b in other)
    k, _ = rank_in(rank_sum_counts(len(one), len(other)), alpha)
    return _bounded(shifts, max(k, fewest), min(len(one), len(other)))


def paired_interval(values: Sequence[float], alpha: float = ALPHA) -> Interval:
    """Centre of values: exact bounds from six on, below that Student's."""
    if len(values) >= FEWEST_PAIRS:
        return walsh_interval(values, alpha)
    return t_interval(values, alpha)


Arms = tuple[Sequence[float], Sequence[float]]
"""Logs of the runs of the reference and of the candidate."""


def comparison_interval(
    rounds: Arms,
    beside: Arms = ((), ()),
    before: Sequence[float] = (),
    *,
    sigma: float = 0.0,
    alpha: float = COMPARED_ALPHA,
) -> Interval:
    """Log gain of the candidate with bounds, by the method at the head of this module.

    `rounds`: both arms run by run, in order. `beside`: sound runs of rounds that do not count
    as a whole. `before`: runs of the reference before all rounds, when the host may have been
    another; they only move a bound outwards. Both arms have two runs or more, or no bounds.
    """
    reference, candidate = ((*one, *more) for one, more in zip(rounds, beside, strict=True))
    n = min(len(reference), len(candidate))
    if len(rounds[0]) >= FEWEST_PAIRS:
        ratios = list(map(operator.sub, rounds[1], rounds[0]))
        bounds = walsh_interval(ratios, max(alpha, 2.0 ** -len(ratios)))
    else:
        level = TWO_ROUNDS_ALPHA if n < FEWEST_TO_TELL_MODES else alpha
        bounds = welch_interval(candidate, reference, level, sigma=sigma)
    low, high = bounds.low, bounds.high
    if len(rounds[0]) < RANKED_BELOW:
        for those in (reference, (*reference, *before)):
            ranks = two_sample_interval(candidate, those, alpha, fewest=1)
            low, high = min(low, ranks.low), max(high, ranks.high)
    if n < FEWEST_TO_TELL_MODES:
        low, high = low - math.log(MODE), high + math.log(MODE)
    return Interval(estimate=bounds.estimate, low=low, high=high, n=len(rounds[0]))


def estimate_inside(low: float, high: float, *estimates: float) -> float:
    """First estimate strictly inside the bounds, else their middle."""
    candidates = (*estimates, (low + high) / 2)
    return next(
        (candidate for candidate in candidates if low < candidate < high), estimates[0]
    )


MOST_OWN = 0.1
"""Share of the windows' variance below which they follow their items, and not the runs.

Judgement: of independent windows, eight in each of two runs, one pair in 200 shows as little."""


def own_share(groups: Sequence[Sequence[float]]) -> float:
    """Share of the variance of windows that is each run's own; 1 unless most is common.

    `groups`: values of consecutive windows, by run. Runs of equal items in one order are fast and
    slow at the same places; what is left without that, and without the means of the runs, is noise.
    """
    if len({len(group) for group in groups}) != 1 or len(groups) < 2 or len(groups[0]) < 3:
        return 1.0
    centred = [[value - statistics.fmean(group) for value in group] for group in groups]
    common = [statistics.fmean(window) for window in zip(*centred, strict=True)]
    total = sum(value**2 for group in centred for value in group) / len(groups)
    left = sum(
        (value - shared) ** 2
        for group in centred
        for value, shared in zip(group, common, strict=True)
    ) / (len(groups) - 1)
    share = left / total if total else 1.0
    return share if share < MOST_OWN else 1.0


BY_LUCK = 4
"""Fewer processes than this may agree by luck, and then tell too small a spread.

Judgement: a larger number keeps the spread of windows as a floor where processes have shown less.
"""


def noise_band(groups: Sequence[Sequence[float]]) -> float | None:
    """Relative spread between equal processes.

    A group holds the window rates of one process. The result is twice the standard
    deviation of a process's rate: five of six pairs of equal runs differ by less. Few
    processes may agree by luck; the spread inside the worst is their floor. What their
    windows have in common, one by one, is no part of it: a window of short prompts is fast
    in each of them.
    """
    logs = [
        logs for group in groups if (logs := [math.log(rate) for rate in group if rate > 0])
    ]
    deviation_share = math.sqrt(own_share(logs))
    floor = [
        deviation_share * statistics.stdev(g) / math.sqrt(len(g))
        for g in logs
        if len(g) > 1
    ]
    spreads = floor if len(logs) < BY_LUCK else []
    if len(logs) > 1:
        means = [statistics.fmean(group) for group in logs]
        gap = statistics.median(abs(a - b) for a, b in itertools.combinations(means, 2))
        few = 1 + 0.5 / len(logs)  # the median of few gaps lies above that of many
        spreads.append(gap / PAIR_GAP_PER_SIGMA / few)
    return math.expm1(2 * max(spreads)) if spreads else None


def t_interval(values: Sequence[float], alpha: float = ALPHA) -> Interval:
    """Mean with Student bounds at `alpha` a side, which hold for normal values."""
    _require_finite(values)
    n = len(values)
    mean = statistics.fmean(values)
    half = math.inf
    if n > 1:
        half = t_quantile(1 - alpha, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(estimate=mean, low=mean - half, high=mean + half, n=n)


def welch_interval(
    one: Sequence[float], other: Sequence[float], alpha: float, *, sigma: float = 0.0
) -> Interval:
    """Difference of two means with Welch's bounds, for normal values of unequal spread.

    `sigma`: least standard deviation of a difference of one value of each.
    """
    _require_finite(one)
    _require_finite(other)
    sizes = [len(one), len(other)]
    mean = statistics.fmean(one) - statistics.fmean(other)
    half = math.inf
    if min(sizes) > 1:
        parts = [_variance(sample) / len(sample) for sample in (one, other)]
        floor = sigma**2 / 2 * sum(1 / n for n in sizes)
        squares = sum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True))
        degrees = sum(parts) ** 2 / squares if squares else sum(sizes) - 2
        half = _quantile_between(1 - alpha, max(degrees, min(sizes) - 1))
        half *= math.sqrt(max(sum(parts), floor))
    return Interval(estimate=mean, low=mean - half, high=mean + half, n=min(sizes))


def half_width(rounds: int, sigma: float) -> float:
    """Expected distance of a bound of a comparison from its centre, to plan its rounds.

    `sigma`: standard deviation of a round's log ratio.
    """
    return t_quantile(1 - COMPARED_ALPHA, rounds - 1) * sigma / math.sqrt(rounds)


def _variance(values: Sequence[float]) -> float:
    """Sample variance, many times as quick as that of `statistics`."""
    mean = statistics.fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _quantile_between(probability: float, degrees: float) -> float:
    """Student's quantile for broken degrees of freedom, on the safe side.

    The quantile is convex in 1 / degrees, so the chord between whole degrees lies above it.
    """
    below = math.floor(degrees)
    near, far = (t_quantile(probability, degrees) for degrees in (below, below + 1))
    part = (1 / below - 1 / degrees) / (1 / below - 1 / (below + 1))
    return near + part * (far - near)


@cache
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t with `degrees` >= 1, for a probability in [0.5, 1).

    By bisection of the angle theta with t = sqrt(degrees) * tan(theta): all quantiles lie between
    zero and a right angle, so no end of the search has to be guessed.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(high)


def _t_cdf(theta: float, degrees: int) -> float:
    """P(T <= t) for tan(theta) = t / sqrt(degrees) >= 0.

    By the finite sums for whole degrees of Abramowitz and Stegun, *Handbook of Mathematical
    Functions*, 26.7.3 (odd) and 26.7.4 (even).
    """
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
