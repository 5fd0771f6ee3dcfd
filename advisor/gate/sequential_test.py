"""Sequential test of log ratios of pairs; docs/gate.md states the rules.

A pair gives d = ln(rate of base / rate of head); `threshold` is tau = -ln(1 - threshold).
Bounds assume d independent (the serial test guards) and symmetric (random order in pairs).

A test that looks again after each pair, and stops once it likes what it sees, is wrong far more
often than each look by itself. So the looks are few, and each may spend a part of the allowed
error. The parts add up to the whole, which bounds the error however much the looks depend on each
other (Bonferroni); a boundary that uses their dependence would need a model of the noise.

A look has no state: all earlier ones are replayed from the pairs. The answer is therefore the same
whenever it is asked, and anyone can recompute it from the record.
"""

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from advisor import stats
from advisor.gate.schema import Ruling
from advisor.model import Interval

Outcome = Literal["pass", "regression", "inconclusive"]
Key = TypeVar("Key")

ALPHA = 0.05
"""Chance of a wrong verdict a side, over all looks and workloads.

The usual 5 %, by judgement. Record: benchmarks/results/gate-cpu2.md: where pairs are independent, a
true drop of just the threshold is red in 3.1 to 4.2 % of gates, and passes in 3.5 to 4.3 %."""
SPENT: dict[int, dict[Outcome, float]] = {
    5: {"pass": 0.625, "regression": 0.0},
    9: {"pass": 0.04, "regression": 0.0},
    12: {"pass": 0.07, "regression": 0.10},
    17: {"pass": 0.033, "regression": 0.03},
    24: {"pass": 0.232, "regression": 0.87},
}
"""Shares of ALPHA by number of pairs that allow a verdict; each column adds up to 1.

A pass may fall after five pairs, the usual end of a harmless change: five pairs have bounds at a
level of 1/32 and not below, which is 0.625 of ALPHA. A regression may not fall before twelve: with
nine, a base that has a slow mode of its own turned heads red too often. Most of its error is kept
for the last look, which has most pairs to prove with. A single stray run does not keep a pass from
falling at 17 pairs; one that speaks against a regression keeps that from it.

Chosen by `python -m benchmarks.gate_error_rates`; record: benchmarks/results/gate-cpu2.md.
"""
LOOKS = tuple(SPENT)
FEWEST_TO_FAIL = min(look for look, spent in SPENT.items() if spent["regression"])
"""Pairs from which a regression may fall that is not evident by itself."""
EVIDENT = math.log(1.5)
"""A slowdown is evident if each pair exceeds the threshold by this and the spread.

Judgement: no chance is claimed for this rule. It is wrong only where a slow mode of that size
falls on head in every pair; one in a third of head's runs does so in 0.4 % of gates of five pairs.
"""
SERIAL_LIMIT = 1.645
"""Largest z of the serial test for a verdict: the normal's 95 % point, so 1 chance in 20."""
CORRELATED = "consecutive pairs are alike, so they are not independent"


def level(look: int, outcome: Outcome) -> float:
    """Error that `look` may spend on `outcome`; 0: it cannot fall there."""
    return round(ALPHA * SPENT[look][outcome], 12)  # five pairs need exactly 1/32


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Outcome of one workload, on the scale of d."""

    outcome: Outcome
    interval: Interval
    """Bounds by which the latest look decided, or could not: of the pairs up to it."""
    confidence: float
    """Confidence level of the interval: what the errors of both its bounds leave of 1."""
    correlated: bool = False
    """Serial correlation withheld a verdict that the bounds gave."""


def judge(
    differences: Mapping[Key, Sequence[float]], taus: Mapping[Key, float]
) -> dict[Key, Judgement]:
    """Judge each workload from its ordered, valid pairs.

    `taus`: thresholds. All looks are replayed: what an early one decided stays.
    """
    decided: dict[Key, Judgement] = {}
    latest = {
        key: _Sample(values[: LOOKS[0]], taus[key]) for key, values in differences.items()
    }
    for look in LOOKS:
        ready = {
            key: _Sample(values[:look], taus[key])
            for key, values in differences.items()
            if key not in decided and len(values) >= look
        }
        latest |= ready
        decided |= _regressions(ready, decided, len(differences))
        for key, sample in ready.items():
            spent = level(look, "pass")
            if key not in decided and sample.passes(spent):
                decided[key] = _judgement("pass", sample.values, spent, spent)
    red = sum(judgement.outcome == "regression" for judgement in decided.values())
    for key, sample in latest.items():
        if key not in decided:
            look = max(LOOKS[0], len(sample.values))
            to_pass, to_fail = level(look, "pass"), level(look, "regression")
            below = to_fail / (len(differences) - red) or to_pass  # it could not fall there
            decided[key] = _judgement(
                "inconclusive", sample.values, below, to_pass, correlated=sample.withheld
            )
    return {key: decided[key] for key in differences}


KEPT_BY_CHANCE = 0.02
"""Chance that a change without gain is kept, over all looks.

Many edits are tried for each that gains, so what is kept has to be surer than what is dropped.
Judgement: larger keeps more edits that gain nothing, smaller takes more pairs for each keep."""
DROPPED_BY_CHANCE = 0.05
"""Chance that a change which is worth it is dropped, over all looks.

Judgement: larger loses more gains, smaller takes more pairs for each edit that is dropped."""
RULED: dict[int, dict[Ruling, float]] = {
    5: {"drop": 1 / 32, "keep": 0.0},
    7: {"drop": 0.0, "keep": 1 / 128},
    9: {"drop": 1 / 512, "keep": 1 / 512},
    12: {"drop": 0.0035, "keep": 0.002},
    17: {"drop": 0.0017, "keep": 0.002},
    24: {"drop": 0.0035, "keep": 0.002},
    34: {"drop": 0.004, "keep": 0.002},
    48: {"drop": 0.004, "keep": 0.002},
}
"""Chance of a wrong ruling that each look may spend, by number of pairs.

A change without gain is dropped after five pairs where equal processes agree to 1 %. The looks
beyond 24 are for programs whose processes differ by 3 %: half of those were left undecided.

Chosen by `python -m benchmarks.gate_error_rates --keep`; record: docs/referee.md.
"""
RULING_LOOKS = tuple(RULED)
EVIDENT_PAIRS = 3
"""First pairs by which a change is dropped that is slower in each by `EVIDENT` and the spread.

Judgement: a slow mode of that size in a third of head's runs falls on all three in 3.7 % of calls,
and on five in 0.4 %; most changes that are so slow are so by their code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRuling:
    """Whether a change is worth keeping, on the scale of log gains."""

    ruling: Ruling
    gain: Interval
    """Log gain of the change, with the bounds by which the latest look decided, or could not."""
    confidence: float
    """Confidence level of the interval: what the errors of both its bounds leave of 1."""
    correlated: bool = False
    """Serial correlation withheld a ruling that the bounds gave."""


def keep_or_drop(gains: Sequence[float], wanted: float) -> ChangeRuling:
    """Rule on a change from the log gains of its ordered, valid pairs.

    `wanted`: the log gain that is worth keeping, above zero. A change is dropped once a gain of
    `wanted` is ruled out, and kept once any gain is proven. What lies between may go either
    way. All looks are replayed.
    """
    withheld = False
    if _evidently_slower(gains[:EVIDENT_PAIRS]):
        return _decision("drop", gains[:EVIDENT_PAIRS], RULED[RULING_LOOKS[0]])
    for look in (look for look in RULING_LOOKS if len(gains) >= look):
        spent = RULED[look]
        small = _Sample(gains[:look], wanted)
        proven = _Sample([-gain for gain in gains[:look]], 0.0)
        if spent["drop"] and small.passes(spent["drop"]):
            return _decision("drop", gains[:look], spent)
        if spent["keep"] and proven.passes(spent["keep"]):
            return _decision("keep", gains[:look], spent)
        withheld = small.withheld or proven.withheld
    latest = max((n for n in RULING_LOOKS if n <= len(gains)), default=RULING_LOOKS[0])
    return _decision("undecided", gains, RULED[latest], correlated=withheld)


def _evidently_slower(gains: Sequence[float]) -> bool:
    """True where no bound is needed: each of the first pairs lost much more than they scatter."""
    if len(gains) < EVIDENT_PAIRS:
        return False
    return -max(gains) > max(EVIDENT, max(gains) - min(gains))


def _decision(
    ruling: Ruling,
    gains: Sequence[float],
    spent: Mapping[Ruling, float],
    *,
    correlated: bool = False,
) -> ChangeRuling:
    """Ruling with its bounds: below by what may keep a change, above by what may drop it."""
    fallback = max(spent.values())
    below, above = (spent[each] or fallback for each in ("keep", "drop"))
    low, high = (stats.walsh_interval(gains, each) for each in (below, above))
    return ChangeRuling(
        ruling=ruling,
        gain=replace(low, high=high.high),
        confidence=1 - below - above,
        correlated=correlated,
    )


def serial_correlation_z(values: Sequence[float]) -> float:
    """Correlation of neighbours, in standard deviations; below 0 they alternate.

    Von Neumann's ratio of ranks, by Bartels' approximation: a stray run decides nothing.
    """
    ordered = sorted(values)
    # equal values share their ranks
    ranks = [(bisect_left(ordered, v) + bisect_right(ordered, v) - 1) / 2 for v in values]
    n, mean = len(ranks), statistics.fmean(ranks)
    around = sum((rank - mean) ** 2 for rank in ranks)
    if not around:
        return 0.0
    steps = sum((b - a) ** 2 for a, b in itertools.pairwise(ranks))
    return (2 - steps / around) / math.sqrt(20 / (5 * n + 7))


@dataclass(slots=True)
class _Sample:
    """The pairs of one workload at one look."""

    values: Sequence[float]
    tau: float
    withheld: bool = False

    def passes(self, level: float) -> bool:
        """Slowdown proven smaller than allowed."""
        bounds = stats.walsh_interval(self.values, level)
        return bounds.high < self.tau and self._independent()

    def regresses(self, level: float) -> bool:
        """Slowdown evident, or proven too large."""
        smallest, largest = min(self.values), max(self.values)
        if smallest - self.tau > max(EVIDENT, largest - smallest):
            return True
        bounds = stats.walsh_interval(self.values, level)
        proven = bounds.low > self.tau < statistics.fmean(self.values)
        return proven and self._independent()

    def _independent(self) -> bool:
        """True if correlation is absent, or too small to matter.

        Where all pairs lie farther from the threshold than from each other, no dependence among
        them could have brought them there.
        """
        sides = [value - self.tau for value in self.values]
        apart = max(sides) - min(sides)
        if min(sides) > apart or max(sides) < -apart:
            return True
        self.withheld = serial_correlation_z(self.values) > SERIAL_LIMIT
        return not self.withheld


def _regressions(
    ready: Mapping[Key, _Sample], decided: Mapping[Key, Judgement], workloads: int
) -> dict[Key, Judgement]:
    """Regressions that this look proves, with those proven before as `decided`.

    Ten workloads are ten chances of a false alarm, so each is held to a tenth of the level. Once
    one is proven, only the others can still be false, and the next needs a ninth: Holm's
    step-down. A pass needs no such correction, since the gate passes only if every workload does.
    """
    already = sum(judgement.outcome == "regression" for judgement in decided.values())
    regressions: dict[Key, Judgement] = {}
    while True:
        proven = {}
        for key, sample in ready.items():
            spent = level(len(sample.values), "regression")
            allowed = spent / max(1, workloads - already - len(regressions))
            if key not in regressions and sample.regresses(allowed):
                # without a share left it was evident by itself
                decided_at = allowed or level(len(sample.values), "pass")
                proven[key] = _judgement(
                    "regression", sample.values, decided_at, decided_at
                )
        if not proven:
            return regressions
        regressions |= proven


def _judgement(
    outcome: Outcome,
    values: Sequence[float],
    below: float,
    above: float,
    *,
    correlated: bool = False,
) -> Judgement:
    """Judgement with the bounds of these levels, below and above."""
    low, high = (stats.walsh_interval(values, level) for level in (below, above))
    return Judgement(
        outcome=outcome,
        interval=replace(low, high=high.high),
        confidence=1 - below - above,
        correlated=correlated,
    )
