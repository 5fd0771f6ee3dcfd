"""Verdict of a gate, a pure function of raw values.

Nothing passes vacuously: a workload that is missing, renamed, crashed or did less work is named,
and is never a pass.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from advisor import stats
from advisor.gate import code_identity, validity
from advisor.gate.comparison import THROUGHPUT, Comparison, Workload
from advisor.gate.schema import (
    ARMS,
    GateRecord,
    Inputs,
    Limits,
    ProgramEntry,
    Rate,
    RunEntry,
    Variant,
    Verdict,
    WorkloadVerdict,
)
from advisor.gate.sequential_test import LOOKS, judge, level
from advisor.numbers import number

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


def decide(programs: Sequence[ProgramEntry], inputs: Inputs) -> GateRecord:
    """The verdict on all of `programs` together."""
    verdicts: list[WorkloadVerdict] = []
    comparable: list[Comparison] = []
    notes: list[str] = []
    for program in programs:
        if closed := _closed(program, inputs):
            verdicts.append(_named(Workload(program.name), program, *closed))
            continue
        found, named, remarks = _match(program, inputs)
        comparable += found
        verdicts += named
        notes += remarks
    judgements = judge(
        {c.workload: c.differences for c in comparable},
        {c.workload: c.tau for c in comparable},
    )
    verdicts += [c.verdict(judgements[c.workload]) for c in comparable]
    record = GateRecord(
        verdict="error",
        reason="nothing was compared: no workload was measured in both arms",
        discarded_pairs=sum(len(program.pairs) - len(program.kept) for program in programs),
        inputs=inputs,
        validity=validity.statement([pair for program in programs for pair in program.pairs]),
        programs=list(programs),
        notes=notes,
    )
    return led(record, verdicts) if verdicts else record


def led(record: GateRecord, verdicts: Sequence[WorkloadVerdict]) -> GateRecord:
    """`record` with these verdicts, and the figures of the worst."""
    workloads = sorted(verdicts, key=_worst_first)
    worst = workloads[0]
    shared = ("verdict", "slowdown_pct", "ci_low_pct", "ci_high_pct", "confidence", "pairs")
    facts: dict[str, object] = {name: getattr(worst, name) for name in shared}
    reason = f"{worst.name}: {worst.reason}"
    return record.model_copy(update={**facts, "reason": reason, "workloads": workloads})


def settled(record: GateRecord, program: ProgramEntry) -> bool:
    """More pairs of `program` would change nothing."""
    own = [w for w in record.workloads if w.program == program.name]
    return bool(own) and all(w.verdict != "inconclusive" for w in own)


def failed(record: GateRecord, program: ProgramEntry) -> bool:
    """`program` cannot be measured."""
    cannot = {"error", "no-baseline", "invalid"}
    return any(w.verdict in cannot for w in record.workloads if w.program == program.name)


def _worst_first(workload: WorkloadVerdict) -> tuple[int, float, str]:
    slowdown = workload.slowdown_pct
    worsening = math.inf if slowdown is None else -slowdown
    return PRECEDENCE.index(workload.verdict), worsening, workload.name


def of_equal_code(programs: Sequence[ProgramEntry], inputs: Inputs) -> GateRecord:
    """Verdict on pairs of equal code, with the smallest threshold that each workload passes.

    A regression is invalid: this runner cannot be measured on.
    """
    record = decide(programs, inputs)
    comparable = [c for p in programs if not _closed(p, inputs) for c in _match(p, inputs)[0]]
    smallest = {c.workload.name: _smallest_threshold(c) for c in comparable}
    workloads = [
        w.model_copy(update={"notes": [*w.notes, *smallest.get(w.name, ())]})
        for w in record.workloads
    ]
    facts: dict[str, object] = {"mode": "noise", "workloads": workloads}
    if record.verdict == "regression":
        reason = "equal runs came out as a regression: this runner cannot be measured on"
        facts |= {"verdict": "invalid", "reason": reason}
    return record.model_copy(update=facts)


def _smallest_threshold(compared: Comparison) -> list[str]:
    """Smallest threshold, in whole percent, that equal runs pass whichever arm was head."""
    pairs = len(compared.differences)
    look = max(n for n in LOOKS if n <= max(pairs, LOOKS[0]))
    bounds = stats.walsh_interval(compared.differences, level(look, "pass"))
    high = compared.worse_pct(max(-bounds.low, bounds.high))
    if high is None:
        return []
    return [f"smallest threshold that equal code passes: --threshold {max(1, math.ceil(high))}%"]


def _named(
    workload: Workload, program: ProgramEntry, verdict: Verdict, reason: str
) -> WorkloadVerdict:
    return WorkloadVerdict(
        **workload._asdict(),
        name=workload.name,
        verdict=verdict,
        reason=reason,
        pairs=len(program.kept),
    )


def _closed(program: ProgramEntry, inputs: Inputs) -> tuple[Verdict, str] | None:
    """Verdict on a program without a comparison."""
    whole = Workload(program.name)
    if program.error:
        return "error", program.error
    if program.no_baseline:
        return _without_base(whole, program.no_baseline, program, inputs)
    if same := code_identity.why_same_code(program):
        return "invalid", same
    counted = [*program.warm_ups, *(run for pair in program.kept for run in pair.runs)]
    for run in sorted(counted, key=lambda run: run.arm, reverse=True):
        if run.problem:
            failed = f"{run.arm} failed ({run.problem.kind}): {run.problem.evidence}"
            if run.arm == "head":
                return "error", failed
            return _without_base(whole, failed, program, inputs)
    if validity.too_many_discarded(program.pairs):
        reasons = sorted({pair.discarded for pair in program.pairs if pair.discarded})
        count = f"{len(program.pairs) - len(program.kept)} of {len(program.pairs)}"
        return "invalid", f"{count} pairs discarded: {'; '.join(reasons)}"
    if not program.kept:
        return "inconclusive", f"no pair was measured ({program.stopped or 'not begun'})"
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


def _match(
    program: ProgramEntry, inputs: Inputs
) -> tuple[list[Comparison], list[WorkloadVerdict], list[str]]:
    """Comparisons, verdicts on what cannot be compared, and notes."""
    limits = inputs.limits.get(program.name, Limits())
    bounded = {name: share for name, share in limits.figures.items() if name != THROUGHPUT}
    share = limits.figures.get(THROUGHPUT, inputs.threshold)
    runs: dict[Variant, list[RunEntry]] = {
        arm: [getattr(pair, arm) for pair in program.kept] for arm in ARMS
    }
    keys = dict.fromkeys(key for arm in ARMS for run in runs[arm] for key in run.rates)
    asked = {
        Workload(program.name, None if key == program.name else key): (
            limits.benchmarks.get(key, share),
            {arm: [run.rates.get(key) for run in runs[arm]] for arm in ARMS},
        )
        for key in keys
    } | {
        Workload(program.name, None, name): (
            allowed,
            {arm: [run.figures.get(name) for run in runs[arm]] for arm in ARMS},
        )
        for name, allowed in bounded.items()
    }
    comparable: list[Comparison] = []
    named: list[WorkloadVerdict] = []
    notes: list[str] = []
    for workload, (threshold, measured) in asked.items():
        rates = {arm: [rate for rate in measured[arm] if rate] for arm in ARMS}
        if not rates["head"] and _may_be_missing(workload, inputs):
            notes.append(f"{workload.name} was removed, as declared")
            continue
        problem = (
            _absent(workload.name, rates, len(program.kept))
            or _different(rates, runs)
            or _less_work(rates)
        )
        if problem and problem[0] == "no-baseline" and rates["head"]:
            problem = _without_base(workload, problem[1], program, inputs)
        if problem:
            named.append(_named(workload, program, *problem))
            continue
        comparable.append(
            Comparison(workload=workload, program=program, threshold=threshold, rates=rates)
        )
    unused = sorted(set(limits.benchmarks) - {c.workload.benchmark for c in comparable})
    notes += [f"gpu-advisor.toml bounds {name!r}, which was not compared" for name in unused]
    return comparable, named, notes


def _absent(
    name: str, rates: Mapping[Variant, list[Rate]], runs: int
) -> tuple[Verdict, str] | None:
    base, head = (len(rates[arm]) for arm in ARMS)
    if base == head == runs:
        return None
    if not head and base:
        return "error", (
            f"missing in head: base measures it, head does not. If {name!r} was removed on "
            f"purpose, declare it with --allow-removed {name!r}"
        )
    if not base and not head:
        return "no-baseline", "neither base nor head measured it"
    if head < runs:
        return "error", f"only {head} of {runs} runs of head measured it"
    return "no-baseline", f"{base} of {runs} runs of base measured it"


def _different(
    rates: Mapping[Variant, list[Rate]], runs: Mapping[Variant, list[RunEntry]]
) -> tuple[Verdict, str] | None:
    """Rates of different kinds are never compared."""
    kinds = {
        arm: {
            (run.source, rate.unit, rate.better)
            for run, rate in zip(runs[arm], rates[arm], strict=True)
        }
        for arm in ARMS
    }
    if kinds["base"] == kinds["head"] and len(kinds["head"]) == 1:
        return None
    base, head = (
        " and ".join(sorted(f"{unit}s by {source}" for source, unit, _ in kinds[arm]))
        for arm in ARMS
    )
    return "no-baseline", f"base was measured in {base}, head in {head}"


def _less_work(rates: Mapping[Variant, list[Rate]]) -> tuple[Verdict, str] | None:
    work = {}
    for arm in ARMS:
        known = [rate.work for rate in rates[arm] if rate.work is not None]
        if len(known) < len(rates[arm]):
            return None
        work[arm] = statistics.median(known)
    # A program that runs for a fixed time finishes less because it is slower: that is no loss.
    base, head = (statistics.median(rate.mean for rate in rates[arm]) for arm in ARMS)
    if work["head"] / work["base"] >= min(1.0, head / base) * (1 - WORK_TOLERANCE):
        return None
    return "error", (
        f"work not done: head finished {number(work['head'])} {rates['head'][0].unit}s in a run, "
        f"base {number(work['base'])}"
    )
