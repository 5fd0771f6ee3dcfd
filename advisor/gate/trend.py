"""What a series of nights lost or won for good. Pure functions over log rates, oldest first.

One night decides nothing here: a loss counts when several nights in a row lie below the best level
that was ever held. So a creep is found although no night differs from the one before, and a gain
that is lost again is a loss.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import stats
from advisor.gate import scatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.scatter import Scatter

HELD = (7, 14, 28)
"""Lengths of a stretch of sessions that counts as a level once held."""
RECENT = (14, 10, 7, 5, 3)
"""Lengths of the stretch up to now that is held against it."""
FALSE_ALARMS_A_YEAR = 0.75
"""Over all benchmarks together, with one session a night."""
NIGHTS = 365
PLACES = 3.0
"""So many independent searches each session of the past is worth, by simulation: with nights that
stray as Student's t with 5 degrees of freedom does."""
BESIDE = 2
"""Sessions on either side that tell whether one is a stray."""
TAMED = 1.0
"""A stray night counts as no more than this many standard deviations away from those beside it."""
SMALL = 6.0
"""How much larger a scatter from n differences is taken, for levels to be told apart: this over
n."""
SHORTEST = 3
"""Fewer sessions are no level of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The latest sessions lie below what was held before."""

    drop: float
    """On the scale of log rates."""
    held: tuple[int, int]
    """First session, and the one behind the last, of the best level."""
    since: int
    """The first of the sessions that are below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of level between two sessions."""

    at: int
    """The first session of the new level."""
    change: float
    """On the scale of log rates: above 0 is faster."""


def lasting_loss(
    log_rates: Sequence[float], smallest: float, beside: Sequence[Scatter | None] = ()
) -> Loss | None:
    """The loss that holds up to the last session, the surest of several; None if there is none.

    `smallest` is the least that counts, on the scale of log rates. `beside` is what is known of
    the other series of the machine: all of them are looked at every night, and share one allowance
    of false alarms.
    """
    alone = scatter.own(log_rates)
    if alone is None:
        return None
    known = scatter.moderated(alone, [other for other in beside if other is not None])
    n, sigma = len(log_rates), known.sigma
    chance = FALSE_ALARMS_A_YEAR / NIGHTS / (1 + len(beside)) / (PLACES * n)
    limit = stats.t_quantile(1 - chance, max(1, int(known.degrees)))
    sums = [0.0, *itertools.accumulate(_tamed(log_rates, TAMED * sigma))]
    found: tuple[float, Loss] | None = None
    for length in HELD:
        best, seen = length, length
        for recent in RECENT:  # longest first: every later one may look at more of the past
            since = n - recent
            if since < length:
                continue
            looked = (best, *range(seen, since + 1))
            best, seen = max(looked, key=lambda end: sums[end] - sums[end - length]), since + 1
            now = (sums[n] - sums[since]) / recent
            drop = (sums[best] - sums[best - length]) / length - now
            apart = drop / (sigma * math.sqrt(1 / length + 1 / recent)) if sigma else math.inf
            if drop >= smallest and apart > limit and (found is None or apart > found[0]):
                found = apart, Loss(drop=drop, held=(best - length, best), since=since)
    return found[1] if found else None


def _tamed(log_rates: Sequence[float], most: float) -> list[float]:
    """Each no further than `most` from the middle of those beside it: a step stays where it is."""
    found = []
    for number, rate in enumerate(log_rates):
        near = log_rates[max(0, number - BESIDE) : number + BESIDE + 1]
        middle = statistics.median(near)
        found.append(min(max(rate, middle - most), middle + most))
    return found


def steps(log_rates: Sequence[float]) -> list[Step]:
    """Where the level changed: the split into levels that explains the series at least cost.

    Each further level has to explain more than chance would. Empty with too few sessions.
    """
    known, n = scatter.own(log_rates), len(log_rates)
    if known is None or not known.sigma or n < 2 * SHORTEST:
        return []
    sigma = known.sigma * (1 + SMALL / (n - 1))
    sums = [0.0, *itertools.accumulate(log_rates)]
    squares = [0.0, *itertools.accumulate(rate * rate for rate in log_rates)]
    price = 3.5 * math.log(n) * sigma * sigma + 1e-12

    def cost(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    best = [-price] + [math.inf] * n
    came_from = [0] * (n + 1)
    for end in range(SHORTEST, n + 1):
        for start in (0, *range(SHORTEST, end - SHORTEST + 1)):
            whole = best[start] + cost(start, end) + price
            if whole < best[end]:
                best[end], came_from[end] = whole, start
    cuts = [n]
    while cuts[-1]:
        cuts.append(came_from[cuts[-1]])
    edges = cuts[::-1]
    levels = [(sums[b] - sums[a]) / (b - a) for a, b in itertools.pairwise(edges)]
    return [
        Step(at=at, change=after - before)
        for at, (before, after) in zip(edges[1:], itertools.pairwise(levels), strict=False)
    ]
