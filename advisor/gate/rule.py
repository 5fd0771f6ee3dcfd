"""The rule: log ratios of pairs to a verdict. Pure functions; nothing is measured here.

One difference a pair: d = ln(rate of base / rate of head), above zero where head is slower.
A drop of the rate by `threshold` is tau = -ln(1 - threshold) on that scale. At each look the
exact bounds L and U of the centre of d decide:

    L > tau   regression: the slowdown is proven larger than allowed
    U < tau   pass: the slowdown is proven smaller than allowed
    else      more pairs, and at the last look: inconclusive

The error budget `alpha` is split evenly over the looks, so looking again is honest. When several
workloads gate together, regressions are tested step-down (Holm): each has to be proven at
level / m, where m counts the workloads that are not proven regressions yet. Passing needs no
such correction: the gate passes only if every workload does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor import stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.model import Interval

Outcome = Literal["pass", "regression", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What was decided before anything was measured."""

    threshold: float = 0.05
    """Largest drop of the rate that is allowed, as a share."""
    alpha: float = 0.05
    """Chance of a wrong verdict on each side, over all looks together."""
    looks: tuple[int, ...] = (6, 12, 24)
    """Numbers of pairs at which a verdict may fall."""
    cap_rule: bool = False
    """At the last look, call a slowdown that is certain, and estimated at `threshold` or more,
    a regression, although it is not proven to be that large."""

    @property
    def tau(self) -> float:
        return -math.log1p(-self.threshold)

    @property
    def level(self) -> float:
        """Error a side at one look."""
        return self.alpha / len(self.looks)

    def looks_for(self, workloads: int) -> tuple[int, ...]:
        """Looks at which `workloads` gating together can decide: the first may need more pairs."""
        first = max(self.looks[0], stats.fewest_pairs(self.level / max(1, workloads)))
        return (first, *(n for n in self.looks[1:] if n > first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the pairs of one workload prove. All figures on the scale of d."""

    outcome: Outcome
    interval: Interval
    """At the look that decided; of all pairs so far if none did."""
    looked_at: int | None
    """Number of pairs at the look that decided; None if none did."""
    smallest_provable: float | None
    """The smallest slowdown that this many pairs with this spread prove nine times in ten."""
    faster: bool = False
    """An improvement larger than the threshold is proven: was all the work done?"""
    by_cap: bool = False


def judge(differences: Mapping[str, Sequence[float]], rule: Rule) -> dict[str, Judgement]:
    """A judgement for each workload, from its valid pairs in the order they were measured.

    The looks are replayed from the start, so the answer does not depend on when one asks: a
    workload that was decided at an early look stays decided. Raises ValueError if a workload has
    no pairs.
    """
    decided: dict[str, Judgement] = {}
    looks = rule.looks_for(len(differences))
    for look in looks:
        ready = {
            name: list(d[:look])
            for name, d in differences.items()
            if name not in decided and len(d) >= look
        }
        decided |= _regressions(ready, rule, decided, len(differences))
        for name, values in ready.items():
            if name in decided:
                continue
            interval = stats.walsh_interval(values, rule.level)
            if interval.high < rule.tau:
                decided[name] = _judgement("pass", values, interval, rule, look)
            elif look == looks[-1] and rule.cap_rule and _certain(interval, rule):
                decided[name] = _judgement("regression", values, interval, rule, look, by_cap=True)
    return {
        name: decided[name]
        if name in decided
        else _judgement(
            "inconclusive", d, stats.walsh_interval(d[: looks[-1]], rule.level), rule, None
        )
        for name, d in differences.items()
    }


def _regressions(
    ready: Mapping[str, Sequence[float]],
    rule: Rule,
    decided: Mapping[str, Judgement],
    workloads: int,
) -> dict[str, Judgement]:
    """Holm's step-down: every proof makes the next one cheaper."""
    already = sum(j.outcome == "regression" for j in decided.values())
    found: dict[str, Judgement] = {}
    while True:
        level = rule.level / max(1, workloads - already - len(found))
        proven = {
            name: _judgement("regression", values, interval, rule, len(values))
            for name, values in ready.items()
            if name not in found
            and (interval := stats.walsh_interval(values, level)).low > rule.tau
        }
        if not proven:
            return found
        found |= proven


def _certain(interval: Interval, rule: Rule) -> bool:
    return interval.low > 0 and interval.estimate >= rule.tau


def _judgement(
    outcome: Outcome,
    values: Sequence[float],
    interval: Interval,
    rule: Rule,
    look: int | None,
    *,
    by_cap: bool = False,
) -> Judgement:
    return Judgement(
        outcome=outcome,
        interval=interval,
        looked_at=look,
        smallest_provable=stats.smallest_provable(values, rule.level),
        faster=interval.high < -rule.tau,
        by_cap=by_cap,
    )


def drop_pct(difference: float) -> float | None:
    """d to the drop of the rate in percent; negative where head is faster; None if unbounded."""
    if math.isinf(difference):
        return None
    return -100 * math.expm1(-difference)
