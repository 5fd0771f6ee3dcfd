"""How far the nights of a series scatter, by its own account and by that of others beside it.

A short series hardly knows its own scatter, and a test that allows for that finds little. The
benchmarks of one machine scatter much alike, so each borrows from the others, the more so the
better they agree: a moderated variance (Smyth 2004). Pure functions over log rates, oldest first.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST = 9
"""Differences of neighbours without which nothing is known."""
STRAY = 4.5
"""A difference of neighbours this many times the middle one is a step, or a stray night."""
WORTH = 2 / 3
"""Degrees of freedom that a difference of neighbours is worth, each night being in two."""
FEWEST_OTHERS = 4
MOST_DEGREES = 200.0
"""That others are worth, however well they agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """The standard deviation of one session about its level, and how well it is known."""

    sigma: float
    degrees: float
    """Of freedom."""


def own(log_rates: Sequence[float]) -> Scatter | None:
    """By the series itself; None with too few sessions.

    From what neighbours differ by, without the few differences that are steps, so that neither a
    step nor a creep is taken for noise.
    """
    steps = [abs(b - a) for a, b in itertools.pairwise(log_rates)]
    if len(steps) < FEWEST:
        return None
    ordinary = STRAY * statistics.median(steps)
    kept = [step * step for step in steps if step <= ordinary] or [0.0]
    return Scatter(sigma=math.sqrt(statistics.fmean(kept) / 2), degrees=WORTH * len(steps))


def moderated(found: Scatter, others: Sequence[Scatter]) -> Scatter:
    """`found` as its own series and the `others` of its machine know it together.

    One that is unlike the others makes all of them count for less, and itself for more.
    """
    known = [each for each in (found, *others) if each.sigma > 0]
    if len(known) <= FEWEST_OTHERS or not found.sigma:
        return found
    logs = [2 * math.log(each.sigma) + _bias(each.degrees) for each in known]
    excess = statistics.variance(logs) - statistics.fmean(_variance(k.degrees) for k in known)
    degrees = min(_degrees(excess), MOST_DEGREES) if excess > 0 else MOST_DEGREES
    usual = math.exp(statistics.fmean(logs) - _bias(degrees))
    total = degrees + found.degrees
    variance = (degrees * usual + found.degrees * found.sigma**2) / total
    return Scatter(sigma=math.sqrt(variance), degrees=total)


def _bias(degrees: float) -> float:
    """What the logarithm of a variance of so many degrees lies too low by, on average."""
    return 1 / degrees + 1 / (3 * degrees**2)


def _variance(degrees: float) -> float:
    """Of that logarithm: the trigamma function of half the degrees, nearly."""
    return 2 / degrees + 2 / degrees**2


def _degrees(variance: float) -> float:
    """The degrees that make it `variance`."""
    return (1 + math.sqrt(1 + 2 * variance)) / variance
