"""The rule: log ratios of pairs to a verdict. Pure functions; nothing is measured here.

One difference a pair: d = ln(rate of base / rate of head), above zero where head is slower.
A drop of the rate by `threshold` is tau = -ln(1 - threshold) on that scale. At each look the
exact bounds L and U of the centre of d decide:

    L > tau   regression: the slowdown is proven larger than allowed
    U < tau   pass: the slowdown is proven smaller than allowed
    else      more pairs, and at the last look: inconclusive

The error budget `alpha` of each side is spent over the looks, so looking again is honest. A pass
may fall early: being wrong there needs a slowdown that shows in none of the processes. A
regression stops somebody's work, so it waits for enough processes of each arm to show a mode that
one in four of them is in.

A verdict falls only where the pairs look as the bounds assume (`assumptions`), or lie so far from
the threshold that it does not matter; before enough of them are there to tell, only the latter.

When several workloads gate together, regressions are tested step-down (Holm): each has to be
proven at level / m, where m counts the workloads that are not proven regressions yet. Passing
needs no such correction: the gate passes only if every workload does.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from advisor import stats
from advisor.gate import assumptions, layouts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.assumptions import Arms
    from advisor.model import Interval

TuningResult = Literal["pass", "regression", "inconclusive"]

LOOKS = (5, 9, 12, 17, 24)

SPENT: dict[int, tuple[float, float]] = {
    5: (0.625, 0.0),
    9: (0.04, 0.0),
    12: (0.07, 0.10),
    17: (0.033, 0.03),
    24: (0.232, 0.87),
}
"""By number of pairs: share of `alpha` that may be spent on a pass, and on a regression. The
levels add up, so the bound holds however the looks depend on each other. One stray run does not
keep a pass from falling at 17 pairs; one that speaks against it keeps a regression from it."""

ONE_BUILD = "the builds of each arm, counted once each, do not show it: one build may make it"

TELLING: dict[TuningResult, int] = {"pass": 9, "regression": 17}
"""With fewer pairs a verdict needs room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What was decided before anything was measured."""

    threshold: float = 0.05
    """Largest drop of the rate that is allowed, as a share."""
    alpha: float = 0.05
    """Chance of a wrong verdict on each side, over all looks together."""
    looks: tuple[int, ...] = LOOKS
    """Numbers of pairs at which a verdict may fall."""
    cap_rule: bool = False
    """At the last look, call a slowdown that is certain, and estimated at `threshold` or more,
    a regression, although it is not proven to be that large."""

    @property
    def tau(self) -> float:
        return -math.log1p(-self.threshold)

    def level(self, look: int, outcome: TuningResult) -> float:
        """Error that may be spent at `look` on `outcome`; 0: it cannot fall there."""
        return _levels(self.looks, self.alpha, 0 if outcome == "pass" else 1)[look]


@cache
def _levels(looks: tuple[int, ...], alpha: float, side: int) -> dict[int, float]:
    """The shares of these looks, made whole; a number of pairs that is no look has the share of
    the look before it."""
    known = {n: max((look for look in LOOKS if look <= n), default=LOOKS[0]) for n in looks}
    shares = {n: SPENT[look][side] for n, look in known.items()}
    whole = sum(shares.values())
    if not whole:
        return dict.fromkeys(looks, alpha / len(looks))
    # five pairs need 1/32, not a hair less
    return {n: round(alpha * share / whole, 12) for n, share in shares.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the pairs of one workload prove. All figures on the scale of d."""

    outcome: TuningResult
    interval: Interval
    """At the look that decided; of all pairs so far if none did."""
    looked_at: int | None
    """Number of pairs at the look that decided; None if none did."""
    doubt: str | None = None
    """Why bounds that would have decided at the last look taken cannot be relied on."""
    by_cap: bool = False


def judge(
    differences: Mapping[str, Sequence[float]],
    rule: Rule,
    arms: Mapping[str, Arms] | None = None,
    taus: Mapping[str, float] | None = None,
) -> dict[str, Judgement]:
    """A judgement for each workload, from its valid pairs in the order they were measured.

    `arms` are the log rates behind the differences: without them less can be seen of what the
    bounds assume. `taus` are thresholds on the scale of d where they are not the rule's. The looks
    are replayed from the start, so the answer does not depend on when one asks: a workload that was
    decided at an early look stays decided. Raises ValueError if a workload has no pairs.
    """
    decided: dict[str, Judgement] = {}
    doubts: dict[str, str | None] = {}
    for look in rule.looks:
        ready = {
            name: _Sample(
                values[:look],
                (arms or {}).get(name),
                (taus or {}).get(name, rule.tau),
                rule.alpha,
            )
            for name, values in differences.items()
            if name not in decided and len(values) >= look
        }
        decided |= _regressions(ready, rule, look, decided, len(differences))
        for name, sample in ready.items():
            if name in decided:
                continue
            if found := _passed(sample, rule, look) or _capped(sample, rule, look):
                decided[name] = found
            doubts[name] = sample.doubt
    return {
        name: decided[name] if name in decided else _undecided(values, rule, doubts.get(name))
        for name, values in differences.items()
    }


class _Sample:
    """The pairs of one workload at one look; what they can be relied on for is asked late."""

    def __init__(
        self, values: Sequence[float], arms: Arms | None, tau: float, alpha: float
    ) -> None:
        self.values = values
        self._alpha = alpha
        self.averages = stats.walsh_averages(values)
        self._arms = arms.first(len(values)) if arms else None
        self.tau = tau
        self.doubt: str | None = None

    def bounds(self, level: float) -> Interval:
        return stats.interval_of(self.averages, len(self.values), level)

    def proves_more(self, interval: Interval) -> bool:
        """Whether head is slower by more than allowed, in most pairs and on their average: a base
        that is slow now and then does not lend its good runs to a verdict against head."""
        return (
            interval.low > self.tau
            and statistics.fmean(self.values) > self.tau
            and self.relied_on("regression")
        )

    def relied_on(self, outcome: TuningResult) -> bool:
        if self._one_build_decides(outcome):
            self.doubt = ONE_BUILD
            return False
        if assumptions.has_room(self.values, self.tau, self._arms):
            return True
        if len(self.values) < TELLING[outcome]:
            return False
        self.doubt = assumptions.why_doubted(*self._between_processes())
        return self.doubt is None

    def _one_build_decides(self, outcome: TuningResult) -> bool:
        """Whether the builds, each counted once, do not prove it."""
        builds = self._arms and layouts.between_builds(self._arms, self._alpha)
        if not builds:
            return False
        proven = builds.high < self.tau if outcome == "pass" else builds.low > self.tau
        return not proven

    def _between_processes(self) -> tuple[Sequence[float], Arms | None]:
        """Differences and arms without what their builds differ by: that was looked at apart."""
        if not self._arms or self._arms.builds is None:
            return self.values, self._arms
        arms = layouts.within_builds(self._arms)
        return [b - h for b, h in zip(arms.base, arms.head, strict=True)], arms


def _regressions(
    ready: Mapping[str, _Sample],
    rule: Rule,
    look: int,
    decided: Mapping[str, Judgement],
    workloads: int,
) -> dict[str, Judgement]:
    """Holm's step-down: every proof makes the next one cheaper."""
    spent = rule.level(look, "regression")
    already = sum(j.outcome == "regression" for j in decided.values())
    found: dict[str, Judgement] = {}
    while spent:
        level = spent / max(1, workloads - already - len(found))
        proven = {
            name: Judgement(outcome="regression", interval=interval, looked_at=look)
            for name, sample in ready.items()
            if name not in found and sample.proves_more(interval := sample.bounds(level))
        }
        if not proven:
            break
        found |= proven
    return found


def _passed(sample: _Sample, rule: Rule, look: int) -> Judgement | None:
    interval = sample.bounds(rule.level(look, "pass"))
    if interval.high < sample.tau and sample.relied_on("pass"):
        return Judgement(outcome="pass", interval=interval, looked_at=look)
    return None


def _capped(sample: _Sample, rule: Rule, look: int) -> Judgement | None:
    if not rule.cap_rule or look != rule.looks[-1]:
        return None
    interval = sample.bounds(rule.level(look, "regression"))
    sure = interval.low > 0 and interval.estimate >= sample.tau
    if sure and sample.relied_on("regression"):
        return Judgement(outcome="regression", interval=interval, looked_at=look, by_cap=True)
    return None


def _undecided(values: Sequence[float], rule: Rule, doubt: str | None) -> Judgement:
    """Bounds of all pairs so far, at the level of the last look that they reached."""
    used = values[: rule.looks[-1]]
    look = max((n for n in rule.looks if n <= len(used)), default=rule.looks[0])
    level = rule.level(look, "pass")
    return Judgement(
        outcome="inconclusive",
        interval=stats.walsh_interval(used, level),
        looked_at=None,
        doubt=doubt,
    )
