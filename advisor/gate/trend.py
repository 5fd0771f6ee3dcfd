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

if TYPE_CHECKING:
    from collections.abc import Sequence

HELD = (10, 20, 40)
"""Lengths of a stretch of sessions that counts as a level once held."""
RECENT = (10, 7, 5, 3, 2)
"""Lengths of the stretch up to now that is held against it."""
FALSE_ALARMS_A_YEAR = 0.2
"""Over all benchmarks together, with one session a night."""
NIGHTS = 365
PLACES = 100.0
"""So many independent searches one night is worth: by simulation."""
STRAY = 4.5
"""A difference of neighbours this many times the middle one is a step, or a stray night."""
SMALL = 6.0
"""How much larger a deviation from n differences is taken: this over n."""
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


def scatter(log_rates: Sequence[float]) -> float | None:
    """Standard deviation of one session about its level; None with too few sessions.

    From what neighbours differ by, without the few differences that are steps, so that neither a
    step nor a creep is taken for noise. Taken larger where it is known from few.
    """
    steps = [abs(b - a) for a, b in itertools.pairwise(log_rates)]
    if len(steps) < HELD[0] - 1:
        return None
    ordinary = STRAY * statistics.median(steps)
    kept = [step * step for step in steps if step <= ordinary] or [0.0]
    return math.sqrt(statistics.fmean(kept) / 2) * (1 + SMALL / len(steps))


def lasting_loss(log_rates: Sequence[float], smallest: float, benchmarks: int) -> Loss | None:
    """The loss that holds up to the last session, the surest of several; None if there is none.

    `smallest` is the least that counts, on the scale of log rates; `benchmarks` series are
    looked at every night, and share one allowance of false alarms.
    """
    sigma = scatter(log_rates)
    if sigma is None:
        return None
    limit = _limit(benchmarks)
    sums = [0.0, *itertools.accumulate(log_rates)]
    n = len(log_rates)
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


def steps(log_rates: Sequence[float]) -> list[Step]:
    """Where the level changed: the split into levels that explains the series at least cost.

    Each further level has to explain more than chance would. Empty with too few sessions.
    """
    sigma, n = scatter(log_rates), len(log_rates)
    if not sigma or n < 2 * SHORTEST:
        return []
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


def _limit(benchmarks: int) -> float:
    """Standard deviations that a loss has to be apart from what was held."""
    chance = FALSE_ALARMS_A_YEAR / NIGHTS / max(1, benchmarks) / PLACES
    return statistics.NormalDist().inv_cdf(1 - chance)
