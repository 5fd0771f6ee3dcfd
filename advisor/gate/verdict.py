"""Verdict of a gate, a pure function of raw values.

Nothing passes vacuously: a workload that is missing, renamed, crashed or did less work is named,
and is never a pass.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.gate import code_identity, thresholds, validity
from advisor.gate.comparison import Comparison, Workload
from advisor.gate.schema import (
    ARMS,
    Inputs,
    Limits,
    PairEntry,
    ProgramEntry,
    RunEntry,
    WorkloadVerdict,
)
from advisor.gate.sequential_test import Rule, judge
from advisor.gate.thresholds import THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.schema import Variant, Verdict

PRECEDENCE: tuple[Verdict, ...] = (
    "regression",
    "error",
    "invalid",
    "no-baseline",
    "inconclusive",
    "pass",
)
"""The verdict of a gate is the first of these that one of its workloads has."""

WORK_TOLERANCE = 0.01
"""A run that ended by itself may finish this share fewer units than base before it is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Verdicts that the raw values prove."""

    verdict: Verdict
    reason: str
    workloads: tuple[WorkloadVerdict, ...]
    """Worst first."""
    leading: WorkloadVerdict | None
    """The workload that the gate's own figures are taken from."""
    discarded_pairs: int
    notes: tuple[str, ...] = ()

    def settled(self, program: ProgramEntry) -> bool:
        """More pairs of `program` would change nothing."""
        own = [w for w in self.workloads if w.program == program.name]
        return bool(own) and all(w.verdict != "inconclusive" for w in own)

    def failed(self, program: ProgramEntry) -> bool:
        """`program` cannot be measured."""
        cannot = {"error", "no-baseline", "invalid"}
        return any(w.verdict in cannot for w in self.workloads if w.program == program.name)


def rule_of(inputs: Inputs) -> Rule:
    """The rule that `inputs` fixed."""
    return Rule(threshold=inputs.threshold, alpha=inputs.alpha, looks=tuple(inputs.looks))


def decide(programs: Sequence[ProgramEntry], inputs: Inputs) -> Decided:
    """The verdict on all of `programs` together."""
    rule = rule_of(inputs)
    verdicts: list[WorkloadVerdict] = []
    comparable: list[Comparison] = []
    notes: list[str] = []
    for program in programs:
        closed = _closed(program, inputs)
        if closed:
            verdicts.append(closed)
            continue
        found, named, remarks = _match(program, inputs)
        comparable += found
        verdicts += named
        notes += remarks
    judgements = judge(
        {c.workload: c.differences for c in comparable},
        rule,
        {c.workload: c.tau for c in comparable},
    )
    verdicts += [c.verdict(judgements[c.workload], rule) for c in comparable]
    verdicts.sort(key=_worst_first)
    leading = verdicts[0] if verdicts else None
    return Decided(
        verdict=leading.verdict if leading else "error",
        reason=(
            leading.reason
            if leading
            else "nothing was compared: no workload was measured in both arms"
        ),
        workloads=tuple(verdicts),
        leading=leading,
        discarded_pairs=sum(pair.discarded is not None for p in programs for pair in p.pairs),
        notes=tuple(notes),
    )


def _worst_first(workload: WorkloadVerdict) -> tuple[int, float, str]:
    slowdown = workload.slowdown_pct
    return (
        PRECEDENCE.index(workload.verdict),
        math.inf if slowdown is None else -slowdown,
        workload.name,
    )


# --- programs that cannot be compared at all ----------------------------------------------


def _closed(program: ProgramEntry, inputs: Inputs) -> WorkloadVerdict | None:
    """Verdict on a program without a comparison."""
    discarded = [pair for pair in program.pairs if pair.discarded]
    kept = _kept(program)

    def closed(verdict: Verdict, reason: str) -> WorkloadVerdict:
        return WorkloadVerdict(
            name=program.name,
            program=program.name,
            verdict=verdict,
            reason=reason,
            pairs=len(kept),
            discarded_pairs=len(discarded),
        )

    if program.error:
        return closed("error", program.error)
    if program.no_baseline:
        return closed(*_without_base(Workload(program.name), program.no_baseline, program, inputs))
    same = code_identity.why_same_code(program)
    if same:
        return closed("invalid", same)
    runs = [*program.warm_ups, *(run for pair in kept for run in (pair.base, pair.head))]
    for run in (*(r for r in runs if r.arm == "head"), *(r for r in runs if r.arm == "base")):
        if run.problem:
            failed = f"{run.arm} failed ({run.problem.kind}): {run.problem.evidence}"
            if run.arm == "head":
                return closed("error", failed)
            return closed(*_without_base(Workload(program.name), failed, program, inputs))
    if validity.too_many_discarded(program.pairs, inputs.looks):
        reasons = "; ".join(sorted({pair.discarded or "" for pair in discarded}))
        return closed(
            "invalid", f"{len(discarded)} of {len(program.pairs)} pairs discarded: {reasons}"
        )
    if not kept:
        return closed("inconclusive", f"no pair was measured ({program.stopped or 'not begun'})")
    return None


def _without_base(
    workload: Workload, reason: str, program: ProgramEntry, inputs: Inputs
) -> tuple[Verdict, str]:
    """Verdict on a workload that base lacks.

    No baseline for a new one; an error for one that base ought to measure.
    """
    known = (workload.benchmark or program.name) in program.known
    if not known or program.name in inputs.allow_removed or _may_be_missing(workload, inputs):
        return "no-baseline", reason
    name = workload.name
    return "error", (
        f"{reason}. {name!r} is not new, so this would be green for ever: restore what base needs "
        f"(data that git ignores: --link PATH), or accept it with --allow-removed {name!r}"
    )


def _may_be_missing(workload: Workload, inputs: Inputs) -> bool:
    return bool({workload.name, workload.benchmark} & set(inputs.allow_removed))


def _kept(program: ProgramEntry) -> tuple[PairEntry, ...]:
    return tuple(pair for pair in program.pairs if not pair.discarded)


# --- workloads of a program, matched by name ----------------------------------------------


def _match(
    program: ProgramEntry, inputs: Inputs
) -> tuple[list[Comparison], list[WorkloadVerdict], list[str]]:
    """Comparisons, verdicts on what cannot be compared, and notes."""
    pairs = _kept(program)
    runs: dict[Variant, list[RunEntry]] = {
        "base": [pair.base for pair in pairs],
        "head": [pair.head for pair in pairs],
    }
    comparable: list[Comparison] = []
    named: list[WorkloadVerdict] = []
    notes: list[str] = []
    for key in dict.fromkeys(key for arm in ARMS for run in runs[arm] for key in run.rates):
        workload = Workload(program.name, None if key == program.name else key)
        present = {arm: sum(key in run.rates for run in runs[arm]) for arm in ARMS}
        if not present["head"] and _may_be_missing(workload, inputs):
            notes.append(f"{workload.name} was removed, as declared")
            continue
        problem = (
            _absent(workload.name, present, len(pairs))
            or _different(key, runs)
            or _less_work(key, runs)
        )
        if problem and problem[0] == "no-baseline":
            problem = _without_base(workload, problem[1], program, inputs)
        if problem:
            named.append(_named(workload, *problem, len(pairs)))
            continue
        comparable.append(_of_rate(workload, key, program, pairs, inputs))
    limits = inputs.limits.get(program.name, Limits())
    for figure, share in limits.figures.items():
        if figure == THROUGHPUT:
            continue
        missing = [arm for arm in ARMS for p in pairs if figure not in getattr(p, arm).figures]
        if missing:
            reason = f"gpu-advisor.toml bounds its {figure}, which is not measured in {missing[0]}"
            workload = Workload(program.name, None, figure)
            named.append(_named(workload, "no-baseline", reason, len(pairs)))
            continue
        comparable.append(_of_figure(figure, share, program, pairs, inputs))
    unused = sorted(set(limits.benchmarks) - {c.workload.benchmark for c in comparable})
    notes += [f"gpu-advisor.toml bounds {name!r}, which was not compared" for name in unused]
    return comparable, named, notes


def _named(workload: Workload, verdict: Verdict, reason: str, pairs: int) -> WorkloadVerdict:
    return WorkloadVerdict(
        name=workload.name,
        program=workload.program,
        benchmark=workload.benchmark,
        figure=workload.figure,
        verdict=verdict,
        reason=reason,
        pairs=pairs,
    )


def _of_rate(
    workload: Workload,
    key: str,
    program: ProgramEntry,
    pairs: tuple[PairEntry, ...],
    inputs: Inputs,
) -> Comparison:
    limits = inputs.limits.get(program.name, Limits())
    share = limits.figures.get(THROUGHPUT, inputs.threshold)
    first = pairs[0].head.rates[key]
    return Comparison(
        workload=workload,
        program=program,
        pairs=pairs,
        threshold=limits.benchmarks.get(key, share),
        higher_is_better=first.better == "higher",
        values={arm: [getattr(pair, arm).rates[key].mean for pair in pairs] for arm in ARMS},
        unit=first.unit,
    )


def _of_figure(
    figure: str,
    share: float,
    program: ProgramEntry,
    pairs: tuple[PairEntry, ...],
    inputs: Inputs,
) -> Comparison:
    own = inputs.own_figures.get(program.name, {}).get(figure)
    return Comparison(
        workload=Workload(program.name, None, figure),
        program=program,
        pairs=pairs,
        threshold=share,
        higher_is_better=own is not None and own.better == "higher",
        values={arm: [getattr(pair, arm).figures[figure] for pair in pairs] for arm in ARMS},
        unit=thresholds.UNITS.get(figure, ""),
    )


def _absent(name: str, present: dict[Variant, int], runs: int) -> tuple[Verdict, str] | None:
    if present["head"] == present["base"] == runs:
        return None
    if not present["head"]:
        return "error", (
            f"missing in head: base measures it, head does not. If {name!r} was removed on "
            f"purpose, declare it with --allow-removed {name!r}"
        )
    if present["head"] < runs:
        return "error", f"only {present['head']} of {runs} runs of head measured it"
    if not present["base"]:
        return "no-baseline", "new in head: base does not measure it"
    return "no-baseline", f"only {present['base']} of {runs} runs of base measured it"


def _different(key: str, runs: dict[Variant, list[RunEntry]]) -> tuple[Verdict, str] | None:
    """Rates of different kinds are never compared."""
    kinds = {
        arm: {(run.source, run.rates[key].unit, run.rates[key].better) for run in runs[arm]}
        for arm in ARMS
    }
    if kinds["base"] == kinds["head"] and len(kinds["head"]) == 1:
        return None
    base, head = (
        " and ".join(sorted(f"{unit}s by {source}" for source, unit, _ in kinds[arm]))
        for arm in ARMS
    )
    return "no-baseline", f"base was measured in {base}, head in {head}"


def _less_work(key: str, runs: dict[Variant, list[RunEntry]]) -> tuple[Verdict, str] | None:
    work = {}
    for arm in ARMS:
        counts = [run.rates[key].work for run in runs[arm]]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return None
        work[arm] = statistics.median(known)
    done = work["head"] / work["base"]
    # A program that runs for a fixed time finishes less because it is slower: that is no loss.
    rates = [statistics.median(run.rates[key].mean for run in runs[arm]) for arm in ARMS]
    slower = rates[1] / rates[0]
    if done >= min(1.0, slower) * (1 - WORK_TOLERANCE):
        return None
    unit = runs["head"][0].rates[key].unit
    return "error", (
        f"work not done: head finished {work['head']:g} {unit}s in a run, base {work['base']:g}"
    )
