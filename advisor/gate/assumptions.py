"""Do the pairs look as the rule assumes: independent, and symmetric about one centre? Pure.

The bounds of a slowdown hold for differences of pairs that are independent and symmetric. Equal
noise in both arms makes them so, whatever its shape. What breaks it can be seen in the pairs
themselves, as far as there are enough of them: neighbours that are alike, a difference that
drifts, an arm that scatters more than the other, or falls into a slow mode more often.

The tests are by ranks, so that a stray run decides none of them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.gate import noise

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIKE = {9: 0.2, 12: 0.6, 17: 1.3, 24: 2.0}
"""By pairs: standard deviations of the serial test. Few pairs show little, and a false alarm costs
little while more can follow; with the last of them it costs the verdict."""
UNEQUAL = 2.58
"""The same of drift and spread: one in a hundred."""
SHARES = 0.25
"""Error of the test that both arms are in their slow mode equally often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """Log rates of the processes of each arm, pair by pair."""

    base: Sequence[float]
    head: Sequence[float]
    builds: Sequence[tuple[int, int]] | None = None
    """Which build of base and which of head made each pair; None where each was built once."""

    def first(self, pairs: int) -> Arms:
        builds = None if self.builds is None else self.builds[:pairs]
        return Arms(base=self.base[:pairs], head=self.head[:pairs], builds=builds)


def has_room(differences: Sequence[float], tau: float, arms: Arms | None) -> bool:
    """Whether all pairs lie on one side of `tau`, further from it than anything lies apart.

    No mode, skew or correlation that can be seen in the pairs is then large enough to matter.
    """
    sides = [d - tau for d in differences]
    if min(sides) < 0 < max(sides):
        return False
    samples: list[Sequence[float]] = [differences]
    if arms:
        samples += [arms.base, arms.head]
    apart = max(max(sample) - min(sample) for sample in samples)
    return min(abs(side) for side in sides) > apart


def why_doubted(differences: Sequence[float], arms: Arms | None) -> str | None:
    """What speaks against independent, symmetric pairs; None if nothing does.

    `differences` are in the order they were measured.
    """
    allowed = ALIKE[max((n for n in ALIKE if n <= len(differences)), default=min(ALIKE))]
    if likeness(differences) > allowed:
        return "consecutive pairs are alike: they are not independent"
    if abs(trend(differences)) > UNEQUAL:
        return "the slowdown itself drifts from pair to pair"
    if arms is None:
        return None
    return _unequal_modes(arms) or _unequal_spread(arms)


def likeness(values: Sequence[float]) -> float:
    """How much more alike neighbours are than in any order, in standard deviations.

    Von Neumann's ratio of the ranks, by Bartels' normal approximation; below 0: they alternate.
    """
    ranks = _ranks(values)
    n, mean = len(ranks), statistics.fmean(ranks)
    around = sum((rank - mean) ** 2 for rank in ranks)
    if not around:
        return 0.0
    steps = sum((b - a) ** 2 for a, b in itertools.pairwise(ranks))
    return (2 - steps / around) / math.sqrt(20 / (5 * n + 7))


def trend(values: Sequence[float]) -> float:
    """Kendall's S of the values against their order, in standard deviations; above 0: rising."""
    n = len(values)
    rises = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    return rises / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def _unequal_spread(arms: Arms) -> str | None:
    """Distances from the arm's own median, compared by ranks."""
    own = []
    for values in (arms.base, arms.head):
        middle = statistics.median(values)
        own.append([abs(value - middle) for value in values])
    n = len(own[0])
    ranks = _ranks([*own[0], *own[1]])
    above = sum(ranks[:n]) - n * (2 * n + 1) / 2
    if abs(above) / math.sqrt(n * n * (2 * n + 1) / 12) <= UNEQUAL:
        return None
    wide, narrow = ("base", "head") if above > 0 else ("head", "base")
    return f"runs of {wide} scatter clearly more than those of {narrow}"


def _unequal_modes(arms: Arms) -> str | None:
    """Runs that lie as far below the good ones of their arm as the modes of either arm lie
    apart."""
    found = [modes for values in (arms.base, arms.head) if (modes := noise.modes(values))]
    if not found:
        return None
    depth = min(fast - slow for slow, fast in found) / 2
    n = len(arms.base)
    base, head = (
        sum(value < statistics.quantiles(values, n=4)[2] - depth for value in values)
        for values in (arms.base, arms.head)
    )
    if _fisher(base, head, n) > SHARES:
        return None
    return f"runs fall into a slow mode unequally often: {base} of {n} in base, {head} in head"


def _fisher(a: int, b: int, n: int) -> float:
    """Two-sided exact p of `a` of n against `b` of n."""
    ways = [math.comb(n, k) * math.comb(n, a + b - k) if k <= a + b else 0 for k in range(n + 1)]
    return sum(way for way in ways if way <= ways[a]) / math.comb(2 * n, a + b)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, equal values sharing the middle of theirs."""
    ordered = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and values[ordered[end + 1]] == values[ordered[at]]:
            end += 1
        for place in ordered[at : end + 1]:
            ranks[place] = (at + end) / 2 + 1
        at = end + 1
    return ranks
