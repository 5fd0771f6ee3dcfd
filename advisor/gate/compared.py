"""One figure of one workload that both arms measured, and what its judgement means in words."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import stats
from advisor.gate import allowances, noise, power
from advisor.gate.assumptions import Arms
from advisor.gate.entries import ARMS
from advisor.gate.records import WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.entries import PairEntry, ProgramEntry, Variant
    from advisor.gate.rule import Judgement, Rule


def words(figure: str, *, higher_is_better: bool) -> tuple[str, str, str]:
    """Worse, better and the change for the worse, of a figure."""
    if figure == allowances.THROUGHPUT:
        return "slower", "faster", "slowdown"
    if higher_is_better:
        return f"less {figure}", f"more {figure}", "drop"
    return f"more {figure}", f"less {figure}", "growth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """One figure of one workload, measured by both arms in every pair that counts."""

    name: str
    program: ProgramEntry
    pairs: tuple[PairEntry, ...]
    figure: str
    """`throughput`, or a figure of `allowances`."""
    threshold: float
    """The share by which it may worsen."""
    higher_is_better: bool = True
    values: Mapping[Variant, Sequence[float]]
    unit: str

    @property
    def tau(self) -> float:
        return allowances.tau(self.threshold, higher=self.higher_is_better)

    @property
    def arms(self) -> Arms:
        """The logs of the values, more is better."""
        sign = 1 if self.higher_is_better else -1
        logs = {arm: [sign * math.log(value) for value in self.values[arm]] for arm in ARMS}
        builds = [(pair.base.build, pair.head.build) for pair in self.pairs]
        told = [(base, head) for base, head in builds if base is not None and head is not None]
        whole = len(told) == len(builds)
        return Arms(base=logs["base"], head=logs["head"], builds=told if whole else None)

    @property
    def differences(self) -> tuple[float, ...]:
        """d of each pair: above zero where head is worse."""
        arms = self.arms
        return tuple(b - h for b, h in zip(arms.base, arms.head, strict=True))

    def verdict(self, judgement: Judgement, rule: Rule, workloads: int) -> WorkloadVerdict:
        """What `judgement` says, for a gate of so many comparisons."""
        interval = judgement.interval
        used = self.differences[: interval.n]
        student = stats.t_interval(used, (1 - interval.confidence) / 2)
        spread = noise.spread_between_processes(self._slots())
        red = self._smallest_red(used, rule, workloads)
        faster = interval.high < -self.tau
        is_rate = self.figure == allowances.THROUGHPUT
        medians = {arm: statistics.median(self.values[arm]) for arm in ARMS}
        return WorkloadVerdict(
            name=self.name,
            figure=self.figure,
            better="higher" if self.higher_is_better else "lower",
            threshold=self.threshold,
            verdict=judgement.outcome,
            reason=self._reason(judgement, rule, red),
            slowdown_pct=self._pct(interval.estimate),
            ci_low_pct=self._pct(interval.low),
            ci_high_pct=self._pct(interval.high),
            mde_pct=None if red is None else self._pct(red),
            pairs=interval.n,
            discarded_pairs=sum(pair.discarded is not None for pair in self.program.pairs),
            unit=self.unit,
            source=self.pairs[0].head.source,
            base_units_per_s=medians["base"] if is_rate else None,
            head_units_per_s=medians["head"] if is_rate else None,
            noise_pct=None if spread is None else 100 * spread,
            t_low_pct=self._pct(student.low),
            t_high_pct=self._pct(student.high),
            faster=faster and is_rate,
            notes=self._remarks(medians, faster=faster),
        )

    def _pct(self, d: float) -> float | None:
        return allowances.worse_pct(d, higher=self.higher_is_better)

    def _slots(self) -> list[list[float]]:
        """Logs of runs that should be equal: same arm, same place in the pair."""
        return [
            [log for log, pair in zip(logs, self.pairs, strict=True) if pair.order == order]
            for logs in (self.arms.base, self.arms.head)
            for order in ("base first", "head first")
        ]

    def _smallest_red(self, used: Sequence[float], rule: Rule, workloads: int) -> float | None:
        """What turns red nine times in ten here, on the scale of d."""
        if len(used) < 2 or self.arms.builds is not None:
            return None  # what builds differ by was not played
        rule = replace(rule, threshold=-math.expm1(-self.tau))
        by = len(self.differences) if self.program.stopped else None
        return power.red_at(statistics.stdev(used), len(used), rule, by=by, workloads=workloads)

    def _reason(self, judgement: Judgement, rule: Rule, red: float | None) -> str:
        limit, pairs = f"{100 * self.threshold:g} %", len(self.pairs)
        rate = self.figure == allowances.THROUGHPUT
        worse, better, change = words(self.figure, higher_is_better=self.higher_is_better)
        if judgement.outcome == "regression":
            if judgement.by_cap:
                return f"{worse} for certain, and about {limit} or more (cap rule)"
            return f"proven {worse} by more than {limit}"
        if judgement.outcome == "pass":
            high = judgement.interval.high
            if high < -self.tau and rate:
                return f"proven faster by more than {limit}: was all the work done?"
            gain = f", and head is proven {better} by {-(self._pct(high) or 0):.1f} % or more"
            return f"a {change} of {limit} or more is ruled out{gain if high < 0 else ''}"
        if judgement.doubt:
            return (
                f"undecided after {pairs} pairs, whose bounds cannot be relied on: "
                f"{judgement.doubt}"
            )
        if pairs < rule.looks[-1]:
            why = f" ({self.program.stopped})" if self.program.stopped else ""
            return (
                f"undecided after {pairs} pairs{why}: a {change} of {limit} is "
                "neither proven nor ruled out"
            )
        # what turns red lies about as far above the threshold as what passes lies below it
        if red is not None and red > 2 * self.tau:
            return (
                f"this runner is too noisy for {limit}: after {pairs} pairs only "
                f"{self._pct(red):.1f} % or more would have turned red for certain"
            )
        return f"the {change} is too close to {limit} to be told from it"

    def _remarks(self, medians: Mapping[Variant, float], *, faster: bool) -> list[str]:
        remarks = []
        if self.figure != allowances.THROUGHPUT:
            told = ", ".join(f"{arm} {medians[arm]:.4g} {self.unit}" for arm in ARMS)
            remarks.append(f"median {self.figure}: {told}")
        for arm, logs in (("base", self.arms.base), ("head", self.arms.head)):
            found = noise.modes(logs)
            if found:
                apart = -100 * math.expm1(found[0] - found[1])
                remarks.append(f"runs of {arm} fall into two groups, {apart:.0f} % apart")
        if faster and self.figure == allowances.THROUGHPUT:
            remarks.append("an unexpected gain can mean work that is no longer done")
        return remarks
