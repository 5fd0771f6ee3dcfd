"""Comparison of one figure of one workload. Pure functions."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from advisor.gate import thresholds
from advisor.gate.schema import ARMS, WorkloadVerdict
from advisor.gate.sequential_test import CORRELATED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.schema import PairEntry, ProgramEntry, Variant
    from advisor.gate.sequential_test import Judgement, Rule


class Workload(NamedTuple):
    """Identity of one comparison, in parts."""

    program: str
    benchmark: str | None = None
    """In the program's suite; None for a program that is one workload."""
    figure: str = thresholds.THROUGHPUT

    @property
    def name(self) -> str:
        """Name in reports."""
        parts = [self.program]
        if self.benchmark is not None:
            parts.append(self.benchmark)
        if self.figure != thresholds.THROUGHPUT:
            parts.append(self.figure)
        return ": ".join(parts)


def words(figure: str, *, higher_is_better: bool) -> tuple[str, str, str]:
    """Words for a figure's changes."""
    if figure == thresholds.THROUGHPUT:
        return "slower", "faster", "slowdown"
    if higher_is_better:
        return f"less {figure}", f"more {figure}", "drop"
    return f"more {figure}", f"less {figure}", "growth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Figure of one workload, measured by both arms."""

    workload: Workload
    program: ProgramEntry
    pairs: tuple[PairEntry, ...]
    threshold: float
    """The share by which it may worsen."""
    higher_is_better: bool = True
    values: Mapping[Variant, Sequence[float]]
    unit: str

    @property
    def tau(self) -> float:
        """The threshold on the scale of d."""
        return thresholds.tau(self.threshold, higher=self.higher_is_better)

    @property
    def differences(self) -> tuple[float, ...]:
        """d of each pair: above zero where head is worse."""
        sign = 1 if self.higher_is_better else -1
        pairs = zip(self.values["base"], self.values["head"], strict=True)
        return tuple(sign * math.log(base / head) for base, head in pairs)

    def verdict(self, judgement: Judgement, rule: Rule) -> WorkloadVerdict:
        """`judgement` as a verdict with its sentence."""
        interval = judgement.interval
        spread = spread_between_processes(self._slots())
        is_rate = self.workload.figure == thresholds.THROUGHPUT and self.higher_is_better
        faster = is_rate and interval.high < -self.tau
        medians = {arm: statistics.median(self.values[arm]) for arm in ARMS}
        bounded = math.isfinite(interval.low) and math.isfinite(interval.high)
        return WorkloadVerdict(
            name=self.workload.name,
            program=self.workload.program,
            benchmark=self.workload.benchmark,
            figure=self.workload.figure,
            better="higher" if self.higher_is_better else "lower",
            threshold=self.threshold,
            verdict=judgement.outcome,
            reason=self._reason(judgement, rule),
            slowdown_pct=self._pct(interval.estimate),
            ci_low_pct=self._pct(interval.low),
            ci_high_pct=self._pct(interval.high),
            confidence=round(interval.confidence, 6) if bounded else None,
            pairs=interval.n,
            discarded_pairs=sum(pair.discarded is not None for pair in self.program.pairs),
            unit=self.unit,
            source=self.pairs[0].head.source,
            base_units_per_s=medians["base"] if is_rate else None,
            head_units_per_s=medians["head"] if is_rate else None,
            noise_pct=None if spread is None else 100 * spread,
            faster=faster,
            notes=self._remarks(medians, is_rate=is_rate, faster=faster),
        )

    def _pct(self, d: float) -> float | None:
        return thresholds.worse_pct(d, higher=self.higher_is_better)

    def _logs(self, arm: Variant) -> list[float]:
        return [math.log(value) for value in self.values[arm]]

    def _slots(self) -> list[list[float]]:
        """Logs of equal runs: same arm, same slot."""
        return [
            [
                log
                for log, pair in zip(self._logs(arm), self.pairs, strict=True)
                if pair.order == order
            ]
            for arm in ARMS
            for order in ("base first", "head first")
        ]

    def _reason(self, judgement: Judgement, rule: Rule) -> str:
        limit, pairs = f"{100 * self.threshold:g} %", len(self.pairs)
        figure = self.workload.figure
        worse, better, change = words(figure, higher_is_better=self.higher_is_better)
        if judgement.outcome == "regression":
            return f"proven {worse} by more than {limit}"
        if judgement.outcome == "pass":
            high = judgement.interval.high
            if high < -self.tau and figure == thresholds.THROUGHPUT:
                return f"proven faster by more than {limit}: was all the work done?"
            gain = f", and head is {better} by {-(self._pct(high) or 0):.1f} % or more"
            return f"a {change} of {limit} or more is ruled out{gain if high < 0 else ''}"
        if judgement.correlated:
            return f"undecided after {pairs} pairs: {CORRELATED}"
        if pairs < rule.looks[-1]:
            why = f" ({self.program.stopped})" if self.program.stopped else ""
            return (
                f"undecided after {pairs} pairs{why}: a {change} of {limit} is "
                "neither proven nor ruled out"
            )
        interval = judgement.interval
        if interval.high - interval.low > self.tau:
            low, high = self._pct(interval.low) or 0.0, self._pct(interval.high) or 0.0
            return (
                f"this runner is too noisy for {limit}: after {pairs} pairs the {change} lies "
                f"between {low:.1f} % and {high:.1f} %"
            )
        return f"the {change} is too close to {limit} to be told from it"

    def _remarks(
        self, medians: Mapping[Variant, float], *, is_rate: bool, faster: bool
    ) -> list[str]:
        remarks = []
        if not is_rate:
            shown = ", ".join(f"{arm} {medians[arm]:.4g} {self.unit}" for arm in ARMS)
            remarks.append(f"median {self.workload.figure}: {shown}")
        for arm in ARMS:
            found = modes(self._logs(arm))
            if found:
                apart = -100 * math.expm1(found[0] - found[1])
                remarks.append(f"runs of {arm} fall into two groups, {apart:.0f} % apart")
        if faster:
            remarks.append("an unexpected gain can mean work that is no longer done")
        return remarks


# --- noise between equal processes --------------------------------------------------------


def spread_between_processes(log_rates: Sequence[Sequence[float]]) -> float | None:
    """Spread of one process's log rate between equal runs.

    Each sequence holds runs of one arm at one slot, in order of time. Only neighbours are
    compared, so slow drift and the effect of the slot cancel. None without two runs of a slot.
    """
    steps = [b - a for runs in log_rates for a, b in itertools.pairwise(runs)]
    if not steps:
        return None
    return math.sqrt(sum(step * step for step in steps) / len(steps) / 2)


def modes(log_rates: Sequence[float]) -> tuple[float, float] | None:
    """Centres of two separate groups of runs.

    Slow and fast; None for one group. The split with least variance inside counts if its centres
    lie five standard deviations and 2 % apart, and the smaller group holds two runs and a tenth of
    all.
    """
    runs = sorted(log_rates)
    smallest = max(2, math.ceil(len(runs) / 10))
    splits = range(smallest, len(runs) - smallest + 1)
    if len(runs) < 8 or not splits:
        return None

    def inside(cut: int) -> float:
        return sum(
            sum((run - statistics.fmean(part)) ** 2 for run in part)
            for part in (runs[:cut], runs[cut:])
        )

    best = min(splits, key=inside)
    slow, fast = statistics.fmean(runs[:best]), statistics.fmean(runs[best:])
    deviation = math.sqrt(inside(best) / (len(runs) - 2))
    return (slow, fast) if fast - slow > max(5 * deviation, 0.02) else None
