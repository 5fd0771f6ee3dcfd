"""Comparison of one figure of one workload. Pure."""

import itertools
import math
import operator
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from advisor import numbers
from advisor.analysis import trend
from advisor.gate.schema import (
    ARMS,
    LARGEST,
    SMALLEST,
    Arm,
    Cause,
    ProgramEntry,
    Rate,
    RunEntry,
    WorkloadVerdict,
)
from advisor.gate.sequential_test import CORRELATED, FEWEST_TO_FAIL, Judgement, Outcome
from advisor.model import Run
from advisor.numbers import number
from advisor.objective import METRICS

THROUGHPUT = "throughput"
FIGURES = {"memory": "GiB", "energy": "J a unit", "latency_p95": "ms"}
"""Units; lower is better. Memory is the process tree's on a CPU."""


def figures(run: Run) -> dict[str, Rate]:
    return {
        name: Rate(mean=value, unit=unit, better="lower")
        for name, unit in FIGURES.items()
        if (value := METRICS[name].read(run)) and SMALLEST <= value <= LARGEST
    }


CAUSES: dict[Outcome, Cause] = {
    "pass": "not-slower",
    "regression": "slower",
    "inconclusive": "undecided",
}


class ComparisonKey(NamedTuple):
    """Identity of one comparison, in parts."""

    program: str
    benchmark: str | None = None
    """In the program's suite; None for a program of one workload."""
    figure: str = THROUGHPUT

    @property
    def name(self) -> str:
        figure = None if self.figure == THROUGHPUT else self.figure
        parts = (self.program, self.benchmark, figure)
        return ": ".join(part for part in parts if part is not None)

    def read(self, run: RunEntry) -> Rate | None:
        """Read its figure in `run`; None if not measured."""
        if self.figure != THROUGHPUT:
            return run.figures.get(self.figure)
        return run.rates.get(self.program if self.benchmark is None else self.benchmark)

    def verdict(self, **facts: Any) -> WorkloadVerdict:
        """`facts` as the verdict on this workload."""
        return WorkloadVerdict(**self._asdict(), name=self.name, **facts)


def words(figure: str) -> tuple[str, str, str]:
    """Words for worse, better and change."""
    if figure == THROUGHPUT:
        return "slower", "faster", "slowdown"
    return f"more {figure}", f"less {figure}", "growth"


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison:
    """Figure of one workload, of both arms in each pair that counts.

    Each pair gives one number d, the logarithm of its ratio. Whatever slowed both processes of
    the pair alike, a warm card or a busy host, cancels in it, and a gain and a loss of the same
    factor are equally far from 0.
    """

    workload: ComparisonKey
    program: ProgramEntry
    threshold: float
    """Share by which it may worsen."""
    rates: Mapping[Arm, Sequence[Rate]]

    @property
    def higher_is_better(self) -> bool:
        return self.rates["head"][0].better == "higher"

    @property
    def tau(self) -> float:
        """Threshold on the scale of d."""
        share = self.threshold
        return -math.log1p(-share) if self.higher_is_better else math.log1p(share)

    @property
    def differences(self) -> tuple[float, ...]:
        """d of each pair: above zero where head is worse."""
        sign = 1 if self.higher_is_better else -1
        pairs = zip(self.rates["base"], self.rates["head"], strict=True)
        return tuple(sign * math.log(base.mean / head.mean) for base, head in pairs)

    @property
    def later_items(self) -> tuple[float, ...]:
        """Log gain of head in each pair that the items it came to may explain.

        Of data in order of cost the faster arm is measured on later items, which cost less,
        or more. Both rates must trend alike along the items.
        """
        pairs = zip(self.rates["base"], self.rates["head"], strict=True)
        return tuple(
            trend.owed((base.slope, head.slope), head.middle - base.middle)
            for base, head in pairs
        )

    @property
    def of_equal_items(self) -> tuple[float, ...]:
        """`differences` without what the items may explain."""
        return tuple(map(operator.add, self.differences, self.later_items))

    def worse_pct(self, d: float) -> float | None:
        """Worsening d in percent of base's figure; None if unbounded."""
        if math.isinf(d):
            return None
        return -100 * math.expm1(-d) if self.higher_is_better else 100 * math.expm1(d)

    def verdict(
        self,
        judgement: Judgement,
        remarks: Iterable[str] = (),
        *,
        fair: Judgement | None = None,
    ) -> WorkloadVerdict:
        """`judgement` as a verdict, with its sentence and notes.

        `fair`: the one without what later items may explain; where they differ nothing is decided.
        """
        interval, unit = judgement.interval, self.rates["head"][0].unit
        low, high = self.worse_pct(interval.low), self.worse_pct(interval.high)
        is_rate = self.workload.figure == THROUGHPUT and self.higher_is_better
        medians = {
            arm: statistics.median(rate.mean for rate in self.rates[arm]) for arm in ARMS
        }
        notes = []
        cause = CAUSES[judgement.outcome]
        if not is_rate:
            typical = ", ".join(f"{arm} {number(medians[arm])} {unit}" for arm in ARMS)
            notes.append(f"median {self.workload.figure}: {typical}")
        elif interval.high < -self.tau:
            notes.append("an unexpected gain can mean work that is no longer done")
        outcome, reason = judgement.outcome, self._reason(judgement, low, high)
        owed = numbers.percent(abs(math.expm1(statistics.median(self.later_items))))
        if fair is not None and fair.outcome != outcome:
            outcome, cause = "inconclusive", "unequal-items"
            reason = (
                f"base and head were measured on items of unequal cost, which may be {owed} of "
                "the difference. Shuffle the data, or let a run go to its end"
            )
        elif fair is not None:
            notes.append(f"items cost less or more along the data: {owed} may be theirs")
        return self.workload.verdict(
            better=self.rates["head"][0].better,
            threshold=self.threshold,
            verdict=outcome,
            cause=cause,
            reason=reason,
            slowdown_pct=self.worse_pct(interval.estimate),
            ci_low_pct=low,
            ci_high_pct=high,
            confidence=None if low is None or high is None else judgement.confidence,
            pairs=interval.n if outcome != "inconclusive" else len(self.differences),
            unit=unit,
            source=self.program.kept[0].head.source,
            base_units_per_s=medians["base"] if is_rate else None,
            head_units_per_s=medians["head"] if is_rate else None,
            noise_pct=self._noise_pct(),
            notes=[*notes, *remarks],
        )

    def _reason(self, judgement: Judgement, low: float | None, high: float | None) -> str:
        limit = f"{100 * self.threshold:g} %"
        worse, better, change = words(self.workload.figure)
        pairs = f"in {judgement.interval.n} pairs"
        if judgement.outcome == "regression":
            return f"proven {worse} by more than {limit} {pairs}"
        if judgement.outcome == "pass":
            won = 0.0 if high is None else max(0.0, -high)
            gain = f", and head is {better} by {won:.1f} % or more" if won else ""
            return f"a {change} of {limit} or more is ruled out {pairs}{gain}"
        obstacle = CORRELATED if judgement.correlated else self.program.stopped
        stopped_by = f" ({obstacle})" if obstacle else ""
        between = "can be any"
        if low is not None and high is not None:
            certain = f"{100 * judgement.confidence:.3g} %"
            between = f"lies between {low:.1f} % and {high:.1f} % ({certain} certain)"
        early = judgement.interval.n < FEWEST_TO_FAIL
        beyond = early and low is not None and low > 100 * self.threshold
        too_few = f". A regression is told from {FEWEST_TO_FAIL} pairs on" if beyond else ""
        return (
            f"undecided after {len(self.differences)} pairs{stopped_by}: "
            f"the {change} {between}, and {limit} is allowed{too_few}"
        )

    def _noise_pct(self) -> float | None:
        """Spread of a process's rate between equal runs in percent; None without two.

        Neighbours of one arm and place are compared: drift and place cancel. The difference of
        two has twice the variance of one, so its mean square is halved.
        """
        changes = []
        for arm, order in itertools.product(ARMS, ("base first", "head first")):
            logs = [
                math.log(rate.mean)
                for rate, pair in zip(self.rates[arm], self.program.kept, strict=True)
                if pair.order == order
            ]
            changes += [later - earlier for earlier, later in itertools.pairwise(logs)]
        if not changes:
            return None
        return 100 * math.sqrt(statistics.fmean(change**2 for change in changes) / 2)
