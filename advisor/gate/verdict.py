"""Raw values of a gate to its verdict: the same pure function for a live gate and for a replay.

Nothing passes vacuously: what is missing, renamed, crashed or did less work is named, and is
never a pass.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import objective
from advisor.gate import allowances, origins, validity
from advisor.gate.allowances import THROUGHPUT
from advisor.gate.compared import Comparable
from advisor.gate.entries import ARMS, PairEntry, ProgramEntry, RunEntry
from advisor.gate.records import Inputs, WorkloadVerdict
from advisor.gate.rule import Rule, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.entries import Variant
    from advisor.gate.records import Verdict

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
    """What the raw values prove."""

    verdict: Verdict
    reason: str
    workloads: tuple[WorkloadVerdict, ...]
    """Worst first."""
    leading: WorkloadVerdict | None
    """The workload that the gate's own figures are taken from."""
    discarded_pairs: int
    notes: tuple[str, ...] = ()

    def settled(self, program: ProgramEntry) -> bool:
        """Whether more pairs of `program` would change nothing."""
        own = [w for w in self.workloads if belongs(w.name, program)]
        return bool(own) and all(w.verdict != "inconclusive" for w in own)

    def failed(self, program: ProgramEntry) -> bool:
        """Whether `program` cannot be measured."""
        cannot = {"error", "no-baseline", "invalid"}
        return any(w.verdict in cannot for w in self.workloads if belongs(w.name, program))


def rule_of(inputs: Inputs) -> Rule:
    return Rule(
        threshold=inputs.threshold,
        alpha=inputs.alpha,
        looks=tuple(inputs.looks),
        cap_rule=inputs.cap_rule,
    )


def belongs(workload: str, program: ProgramEntry) -> bool:
    """Whether `workload` is this program, or a benchmark of it."""
    return workload == program.name or workload.startswith(f"{program.name}: ")


def _about(verdict: str, only: str) -> bool:
    """Whether a verdict on `verdict`, a program as a whole or one figure of it, is on `only`."""
    return verdict == only or only.startswith(f"{verdict}: ")


def difference(base: float, head: float) -> float:
    """d of one pair of rates: ln of how many times better base was, above zero: head is worse."""
    return math.log(objective.THROUGHPUT.gain(head, base))


def decide(programs: Sequence[ProgramEntry], inputs: Inputs) -> Decided:
    """The verdict on all of `programs` together."""
    rule = rule_of(inputs)
    verdicts: list[WorkloadVerdict] = []
    comparable: list[Comparable] = []
    notes: list[str] = []
    for program in programs:
        closed = _closed(program, inputs)
        if closed:
            verdicts.append(closed)
            continue
        found, named, said = _match(program, inputs)
        comparable += found
        verdicts += named
        notes += said
    if inputs.only is not None:
        comparable = [c for c in comparable if c.name == inputs.only]
        verdicts = [v for v in verdicts if _about(v.name, inputs.only)]
    if comparable:
        judgements = judge(
            {c.name: c.differences for c in comparable},
            rule,
            {c.name: c.arms for c in comparable},
            {c.name: c.tau for c in comparable},
        )
        verdicts += [c.verdict(judgements[c.name], rule, len(comparable)) for c in comparable]
    verdicts = [_as_accepted(each, inputs) for each in verdicts]
    verdicts.sort(key=_worst_first)
    discarded = sum(pair.discarded is not None for p in programs for pair in p.pairs)
    if not verdicts:
        reason = "nothing was compared: no workload was measured in both arms"
        return Decided(
            verdict="error",
            reason=reason,
            workloads=(),
            leading=None,
            discarded_pairs=discarded,
            notes=tuple(notes),
        )
    leading = verdicts[0]
    return Decided(
        verdict=_counts_as(leading),
        reason=leading.reason,
        workloads=tuple(verdicts),
        leading=leading,
        discarded_pairs=discarded,
        notes=tuple(notes),
    )


def _as_accepted(found: WorkloadVerdict, inputs: Inputs) -> WorkloadVerdict:
    """A regression with what was accepted of it: all of it, or less than is proven."""
    meant = [each for each in inputs.accepted if each.workload == found.name]
    if found.verdict != "regression" or found.ci_low_pct is None or not meant:
        return found
    most = max(meant, key=lambda each: each.up_to)
    said = f"{100 * most.up_to:g} % accepted by {most.who or 'a label'}"
    if found.ci_low_pct > 100 * most.up_to:
        reason = f"{found.reason}, and by more than the {said}"
        return found.model_copy(update={"reason": reason})
    reason = f"{found.reason}; up to {said}{f': {most.why}' if most.why else ''}"
    return found.model_copy(update={"reason": reason, "accepted": most})


def _counts_as(found: WorkloadVerdict) -> Verdict:
    return "pass" if found.accepted else found.verdict


def _worst_first(workload: WorkloadVerdict) -> tuple[int, float, str]:
    slowdown = workload.slowdown_pct
    return (
        PRECEDENCE.index(_counts_as(workload)),
        math.inf if slowdown is None else -slowdown,
        workload.name,
    )


# --- programs that cannot be compared at all ----------------------------------------------


def _closed(program: ProgramEntry, inputs: Inputs) -> WorkloadVerdict | None:
    """The verdict on a program that has no comparison; None if it has one."""
    discarded = [pair for pair in program.pairs if pair.discarded]
    kept = _kept(program)

    def closed(verdict: Verdict, reason: str) -> WorkloadVerdict:
        return WorkloadVerdict(
            name=program.name,
            verdict=verdict,
            reason=reason,
            pairs=len(kept),
            discarded_pairs=len(discarded),
        )

    if program.error:
        return closed("error", program.error)
    if program.no_baseline:
        return closed(*_without_base(program.name, program.no_baseline, program, inputs))
    same = origins.why_same_code(program)
    if same:
        return closed("invalid", same)
    runs = [*program.warm_ups, *(run for pair in kept for run in (pair.base, pair.head))]
    for run in (*(r for r in runs if r.arm == "head"), *(r for r in runs if r.arm == "base")):
        if run.problem:
            failed = f"{run.arm} failed ({run.problem.kind}): {run.problem.evidence}"
            if run.arm == "head":
                return closed("error", failed)
            return closed(*_without_base(program.name, failed, program, inputs))
    if validity.too_many_discarded(program.pairs, inputs.looks):
        reasons = "; ".join(sorted({pair.discarded or "" for pair in discarded}))
        return closed(
            "invalid", f"{len(discarded)} of {len(program.pairs)} pairs discarded: {reasons}"
        )
    if not kept:
        return closed("inconclusive", f"no pair was measured ({program.stopped or 'not begun'})")
    return None


def _without_base(
    name: str, reason: str, program: ProgramEntry, inputs: Inputs
) -> tuple[Verdict, str]:
    """No baseline for what is new, or may be missing; an error for what base ought to measure."""
    removed = {name, program.name, name.removeprefix(f"{program.name}: ")}
    if name not in program.known or not removed.isdisjoint(inputs.allow_removed):
        return "no-baseline", reason
    return "error", f"{reason}. {_mend(name)}"


def _mend(name: str) -> str:
    return (
        f"{name!r} is not new, so this would be green for ever: restore what base needs (what git "
        f"ignores: --link PATH), or accept it with --allow-removed {name!r}"
    )


def _kept(program: ProgramEntry) -> tuple[PairEntry, ...]:
    return tuple(pair for pair in program.pairs if not pair.discarded)


# --- workloads of a program, matched by name ----------------------------------------------


def _match(
    program: ProgramEntry, inputs: Inputs
) -> tuple[list[Comparable], list[WorkloadVerdict], list[str]]:
    """What can be compared, what cannot (with its verdict), and notes."""
    pairs = _kept(program)
    runs: dict[Variant, list[RunEntry]] = {
        "base": [pair.base for pair in pairs],
        "head": [pair.head for pair in pairs],
    }
    comparable: list[Comparable] = []
    named: list[WorkloadVerdict] = []
    notes: list[str] = []
    for key in dict.fromkeys(key for arm in ARMS for run in runs[arm] for key in run.rates):
        name = program.name if key == program.name else f"{program.name}: {key}"
        removed = key in inputs.allow_removed or name in inputs.allow_removed
        present = {arm: sum(key in run.rates for run in runs[arm]) for arm in ARMS}
        if removed and not present["head"]:
            notes.append(f"{name} was removed, as declared")
            continue
        problem = (
            _absent(name, present, len(pairs)) or _different(key, runs) or _less_work(key, runs)
        )
        if problem and problem[0] == "no-baseline":
            problem = _without_base(name, problem[1], program, inputs)
        if problem:
            verdict, reason = problem
            named.append(
                WorkloadVerdict(name=name, verdict=verdict, reason=reason, pairs=len(pairs))
            )
            continue
        comparable.append(_of_rate(name, key, program, pairs, inputs))
    for figure in inputs.limits.get(program.name, {}):
        if figure == THROUGHPUT:
            continue
        found = _of_figure(figure, program, pairs, inputs)
        if isinstance(found, Comparable):
            comparable.append(found)
        else:
            named.append(found)
    return comparable, named, notes


def _of_rate(
    name: str, key: str, program: ProgramEntry, pairs: tuple[PairEntry, ...], inputs: Inputs
) -> Comparable:
    first = pairs[0].head
    return Comparable(
        name=name,
        program=program,
        pairs=pairs,
        figure=THROUGHPUT,
        threshold=inputs.limits.get(program.name, {}).get(THROUGHPUT, inputs.threshold),
        values={
            arm: [getattr(pair, arm).rates[key].value(inputs.statistic) for pair in pairs]
            for arm in ARMS
        },
        unit=first.rates[key].unit,
    )


def _of_figure(
    figure: str, program: ProgramEntry, pairs: tuple[PairEntry, ...], inputs: Inputs
) -> Comparable | WorkloadVerdict:
    """A figure that base bounds; what was bounded and is not measured is no pass."""
    name = f"{program.name}: {figure}"
    missing = [arm for arm in ARMS for p in pairs if figure not in getattr(p, arm).figures]
    if missing:
        return WorkloadVerdict(
            name=name,
            figure=figure,
            verdict="no-baseline",
            reason=f"gpu-advisor.toml bounds its {figure}, which is not measured in {missing[0]}",
            pairs=len(pairs),
        )
    return Comparable(
        name=name,
        program=program,
        pairs=pairs,
        figure=figure,
        threshold=inputs.limits[program.name][figure],
        higher_is_better=allowances.higher_is_better(
            figure, inputs.own_figures.get(program.name, {})
        ),
        values={arm: [getattr(pair, arm).figures[figure] for pair in pairs] for arm in ARMS},
        unit=allowances.UNITS.get(figure, ""),
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
    kinds = {arm: {(run.source, run.rates[key].unit) for run in runs[arm]} for arm in ARMS}
    if kinds["base"] == kinds["head"] and len(kinds["head"]) == 1:
        return None
    said = {
        arm: " and ".join(sorted(f"{unit}s by {source}" for source, unit in kinds[arm]))
        for arm in ARMS
    }
    return "no-baseline", f"base was measured in {said['base']}, head in {said['head']}"


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
