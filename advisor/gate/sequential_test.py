"""Sequential test: log ratios of pairs to a verdict.

Pure functions.

One difference a pair: d = ln(rate of base / rate of head), above zero where head is slower.
A drop of the rate by `threshold` is tau = -ln(1 - threshold) on that scale. At each look the
exact signed-rank bounds L and U of the centre of d decide:

    L > tau and mean > tau   regression: the slowdown is proven larger than allowed
    U < tau                  pass: the slowdown is proven smaller than allowed
    else                     more pairs, and at the last look: inconclusive

The error budget `alpha` of each side is spent over the looks, so looking again is honest. The
bounds assume independent, symmetric differences. The random order within pairs supports the
second. One test of serial correlation guards the first, and its alarm delays a verdict, unless all
pairs lie further from the threshold than from each other.

Of several workloads, regressions are tested step-down (Holm): each has to be proven at level / m,
where m counts the workloads that are not proven regressions yet. A pass needs no such correction:
the gate passes only if every workload does.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar

from advisor import stats
from advisor.gate.schema import CONFIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.model import Interval

Outcome = Literal["pass", "regression", "inconclusive"]
Key = TypeVar("Key")

LOOKS = (5, 9, 12, 17, 24)

SPENT: dict[int, tuple[float, float]] = {
    5: (0.625, 0.0),
    9: (0.04, 0.0),
    12: (0.07, 0.10),
    17: (0.033, 0.03),
    24: (0.232, 0.87),
}
"""By number of pairs: the share of `alpha` spent on a pass, and on a regression."""

SERIAL_LIMIT = 1.645
"""Largest z of the serial test at which a verdict may fall: exceeded by chance in one of 20."""

CORRELATED = "consecutive pairs are alike, so they are not independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Settings of the test, fixed before anything is measured."""

    threshold: float = 0.05
    """Largest drop of the rate that is allowed, as a share."""
    alpha: float = 0.05
    """Chance of a wrong verdict on each side, over all looks together."""
    looks: tuple[int, ...] = LOOKS
    """Numbers of pairs at which a verdict may fall."""

    @property
    def tau(self) -> float:
        """The threshold on the scale of d."""
        return -math.log1p(-self.threshold)

    def level(self, look: int, outcome: Outcome) -> float:
        """Error that `look` may spend on `outcome`.

        0 means it cannot fall there.
        """
        return _levels(self.looks, self.alpha, 0 if outcome == "pass" else 1)[look]


@cache
def _levels(looks: tuple[int, ...], alpha: float, side: int) -> dict[int, float]:
    """Shares of these looks, scaled to `alpha`.

    Other counts use the look before.
    """
    known = {n: max((look for look in LOOKS if look <= n), default=LOOKS[0]) for n in looks}
    shares = {n: SPENT[look][side] for n, look in known.items()}
    whole = sum(shares.values())
    if not whole:
        return dict.fromkeys(looks, alpha / len(looks))
    # rounded, because five pairs need exactly 1/32
    return {n: round(alpha * share / whole, 12) for n, share in shares.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Outcome of one workload, on the scale of d."""

    outcome: Outcome
    interval: Interval
    """At CONFIDENCE, of the pairs up to the deciding look, else of all pairs."""
    looked_at: int | None
    """Number of pairs at the deciding look; None if none decided."""
    correlated: bool = False
    """Serial correlation withheld a verdict that the bounds gave."""


def judge(
    differences: Mapping[Key, Sequence[float]],
    rule: Rule,
    taus: Mapping[Key, float] | None = None,
) -> dict[Key, Judgement]:
    """Judge each workload from its ordered, valid pairs.

    `taus` are thresholds on the scale of d that differ from the rule's. The looks are replayed
    from the start, so a workload that was decided at an early look stays decided. Raises
    ValueError if a workload has no pairs.
    """
    decided: dict[Key, Judgement] = {}
    correlated: set[Key] = set()
    for look in rule.looks:
        ready = {
            key: _Sample(values[:look], (taus or {}).get(key, rule.tau))
            for key, values in differences.items()
            if key not in decided and len(values) >= look
        }
        decided |= _regressions(ready, rule, decided, len(differences))
        for key, sample in ready.items():
            if key not in decided and sample.passes(rule.level(look, "pass")):
                decided[key] = _judgement("pass", sample.values, look)
        correlated -= ready.keys()
        correlated |= {key for key, sample in ready.items() if sample.withheld}
    for key, values in differences.items():
        if key not in decided:
            used = values[: rule.looks[-1]]
            decided[key] = _judgement("inconclusive", used, None, correlated=key in correlated)
    return {key: decided[key] for key in differences}


def serial_correlation_z(values: Sequence[float]) -> float:
    """Correlation of neighbours, in standard deviations.

    Below 0 they alternate. Von Neumann's ratio of the ranks, by Bartels' normal approximation: a
    stray run decides nothing.
    """
    ranks = _ranks(values)
    n, mean = len(ranks), statistics.fmean(ranks)
    around = sum((rank - mean) ** 2 for rank in ranks)
    if not around:
        return 0.0
    steps = sum((b - a) ** 2 for a, b in itertools.pairwise(ranks))
    return (2 - steps / around) / math.sqrt(20 / (5 * n + 7))


class _Sample:
    """The pairs of one workload at one look."""

    def __init__(self, values: Sequence[float], tau: float) -> None:
        self.values = values
        self.tau = tau
        self.withheld = False
        self._averages = stats.walsh_averages(values)

    def passes(self, level: float) -> bool:
        """The slowdown is proven smaller than allowed."""
        return self._bounds(level).high < self.tau and self._independent()

    def regresses(self, level: float) -> bool:
        """True if the slowdown is proven too large.

        It must hold for most pairs and on their average.
        """
        proven = self._bounds(level).low > self.tau < statistics.fmean(self.values)
        return proven and self._independent()

    def _bounds(self, level: float) -> Interval:
        return stats.interval_of(self._averages, len(self.values), level)

    def _independent(self) -> bool:
        """True if correlation is absent or small."""
        sides = [value - self.tau for value in self.values]
        apart = max(sides) - min(sides)
        if min(sides) > apart or max(sides) < -apart:
            return True
        self.withheld = serial_correlation_z(self.values) > SERIAL_LIMIT
        return not self.withheld


def _regressions(
    ready: Mapping[Key, _Sample], rule: Rule, decided: Mapping[Key, Judgement], workloads: int
) -> dict[Key, Judgement]:
    """Holm's step-down: every proof makes the next one cheaper."""
    already = sum(each.outcome == "regression" for each in decided.values())
    found: dict[Key, Judgement] = {}
    while True:
        proven = {}
        for key, sample in ready.items():
            look = len(sample.values)
            level = rule.level(look, "regression") / max(1, workloads - already - len(found))
            if key not in found and level and sample.regresses(level):
                proven[key] = _judgement("regression", sample.values, look)
        if not proven:
            return found
        found |= proven


def _judgement(
    outcome: Outcome, values: Sequence[float], look: int | None, *, correlated: bool = False
) -> Judgement:
    interval = stats.walsh_interval(values, (1 - CONFIDENCE) / 2)
    return Judgement(outcome=outcome, interval=interval, looked_at=look, correlated=correlated)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share theirs."""
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
