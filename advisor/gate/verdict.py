"""Raw values of a gate to its verdict: the same pure function for a live gate and for a replay.

Nothing passes vacuously: what is missing, renamed, crashed or did less work is named, and is
never a pass.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import stats
from advisor.gate import noise, power, validity
from advisor.gate.assumptions import Arms
from advisor.gate.records import ARMS, Inputs, PairEntry, ProgramEntry, RunEntry, WorkloadVerdict
from advisor.gate.rule import Judgement, Rule, drop_pct, judge
from advisor.objective import THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.records import Arm, Verdict

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparable:
    """One workload that both arms measured in every pair that counts."""

    name: str
    program: ProgramEntry
    pairs: tuple[PairEntry, ...]
    differences: tuple[float, ...]
    arms: Arms


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


def difference(base: float, head: float) -> float:
    """d of one pair of rates: ln of how many times better base was, above zero: head is worse."""
    return math.log(THROUGHPUT.gain(head, base))


def decide(programs: Sequence[ProgramEntry], inputs: Inputs) -> Decided:
    """The verdict on all of `programs` together."""
    rule = rule_of(inputs)
    verdicts: list[WorkloadVerdict] = []
    comparable: list[_Comparable] = []
    notes: list[str] = []
    for program in programs:
        closed = _closed(program, rule)
        if closed:
            verdicts.append(closed)
            continue
        found, named, said = _match(program, inputs)
        comparable += found
        verdicts += named
        notes += said
    if comparable:
        judgements = judge(
            {c.name: c.differences for c in comparable}, rule, {c.name: c.arms for c in comparable}
        )
        verdicts += [_measured(c, judgements[c.name], inputs, len(comparable)) for c in comparable]
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
    verdict = next(v for v in PRECEDENCE if any(w.verdict == v for w in verdicts))
    leading = next(w for w in verdicts if w.verdict == verdict)
    return Decided(
        verdict=verdict,
        reason=leading.reason,
        workloads=tuple(verdicts),
        leading=leading,
        discarded_pairs=discarded,
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


def _closed(program: ProgramEntry, rule: Rule) -> WorkloadVerdict | None:
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
        return closed("no-baseline", program.no_baseline)
    runs = [*program.warm_ups, *(run for pair in kept for run in (pair.base, pair.head))]
    for arm, verdict in (("head", "error"), ("base", "no-baseline")):
        for run in runs:
            if run.arm == arm and run.problem:
                failed = f"{arm} failed ({run.problem.kind}): {run.problem.evidence}"
                return closed(verdict, failed)  # type: ignore[arg-type]
    if validity.too_many_discarded(program.pairs, rule.looks):
        reasons = "; ".join(sorted({pair.discarded or "" for pair in discarded}))
        return closed(
            "invalid", f"{len(discarded)} of {len(program.pairs)} pairs discarded: {reasons}"
        )
    if not kept:
        return closed("inconclusive", f"no pair was measured ({program.stopped or 'not begun'})")
    return None


def _kept(program: ProgramEntry) -> tuple[PairEntry, ...]:
    return tuple(pair for pair in program.pairs if not pair.discarded)


# --- workloads of a program, matched by name ----------------------------------------------


def _match(
    program: ProgramEntry, inputs: Inputs
) -> tuple[list[_Comparable], list[WorkloadVerdict], list[str]]:
    """What can be compared, what cannot (with its verdict), and notes."""
    pairs = _kept(program)
    runs: dict[Arm, list[RunEntry]] = {
        "base": [pair.base for pair in pairs],
        "head": [pair.head for pair in pairs],
    }
    comparable: list[_Comparable] = []
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
        if problem:
            verdict, reason = problem
            named.append(
                WorkloadVerdict(name=name, verdict=verdict, reason=reason, pairs=len(pairs))
            )
            continue
        values = [[run.rates[key].value(inputs.statistic) for run in runs[arm]] for arm in ARMS]
        comparable.append(
            _Comparable(
                name=name,
                program=program,
                pairs=pairs,
                differences=tuple(map(difference, *values)),
                arms=Arms(
                    base=tuple(map(math.log, values[0])), head=tuple(map(math.log, values[1]))
                ),
            )
        )
    return comparable, named, notes


def _absent(name: str, present: dict[Arm, int], runs: int) -> tuple[Verdict, str] | None:
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


def _different(key: str, runs: dict[Arm, list[RunEntry]]) -> tuple[Verdict, str] | None:
    """Rates of different kinds are never compared."""
    kinds = {arm: {(run.source, run.rates[key].unit) for run in runs[arm]} for arm in ARMS}
    if kinds["base"] == kinds["head"] and len(kinds["head"]) == 1:
        return None
    said = {
        arm: " and ".join(sorted(f"{unit}s by {source}" for source, unit in kinds[arm]))
        for arm in ARMS
    }
    return "no-baseline", f"base was measured in {said['base']}, head in {said['head']}"


def _less_work(key: str, runs: dict[Arm, list[RunEntry]]) -> tuple[Verdict, str] | None:
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


# --- what the numbers say -----------------------------------------------------------------


def _measured(
    found: _Comparable, judgement: Judgement, inputs: Inputs, workloads: int
) -> WorkloadVerdict:
    key = found.name.removeprefix(f"{found.program.name}: ")
    base, head = (
        [getattr(pair, arm).rates[key].value(inputs.statistic) for pair in found.pairs]
        for arm in ARMS
    )
    interval = judgement.interval
    used = found.differences[: interval.n]
    level = (1 - interval.confidence) / 2
    student = stats.t_interval(used, level)
    spread = noise.spread_between_processes(_slots(found.pairs, key, inputs))
    mde = _smallest_red(found, used, inputs, workloads)
    faster = interval.high < -rule_of(inputs).tau
    return WorkloadVerdict(
        name=found.name,
        verdict=judgement.outcome,
        reason=_reason(judgement, inputs, found, mde),
        slowdown_pct=drop_pct(interval.estimate),
        ci_low_pct=drop_pct(interval.low),
        ci_high_pct=drop_pct(interval.high),
        mde_pct=None if mde is None else drop_pct(mde),
        pairs=interval.n,
        discarded_pairs=sum(pair.discarded is not None for pair in found.program.pairs),
        unit=found.pairs[0].head.rates[key].unit,
        source=found.pairs[0].head.source,
        base_units_per_s=statistics.median(base),
        head_units_per_s=statistics.median(head),
        noise_pct=None if spread is None else 100 * spread,
        t_low_pct=drop_pct(student.low),
        t_high_pct=drop_pct(student.high),
        faster=faster,
        notes=_remarks(found.arms, faster=faster),
    )


def _smallest_red(
    found: _Comparable, used: Sequence[float], inputs: Inputs, workloads: int
) -> float | None:
    """The slowdown that turns red nine times in ten here, on the scale of d."""
    if len(used) < 2:
        return None
    by = len(found.differences) if found.program.stopped else None
    return power.red_at(
        statistics.stdev(used), len(used), rule_of(inputs), by=by, workloads=workloads
    )


def _slots(pairs: Sequence[PairEntry], key: str, inputs: Inputs) -> list[list[float]]:
    """Log rates of runs that should be equal: same arm, same place in the pair."""
    return [
        [
            math.log(getattr(pair, arm).rates[key].value(inputs.statistic))
            for pair in pairs
            if pair.order == order
        ]
        for arm in ARMS
        for order in ("base first", "head first")
    ]


def _reason(
    judgement: Judgement, inputs: Inputs, found: _Comparable, smallest_red: float | None
) -> str:
    limit = f"{100 * inputs.threshold:g} %"
    tau = rule_of(inputs).tau
    pairs = len(found.differences)
    if judgement.outcome == "regression":
        if judgement.by_cap:
            return f"slower for certain, and about {limit} or more (cap rule)"
        return f"proven slower by more than {limit}"
    if judgement.outcome == "pass":
        high = judgement.interval.high
        if high < -tau:
            return f"proven faster by more than {limit}: was all the work done?"
        gain = f", and head is proven faster by {-(drop_pct(high) or 0):.1f} % or more"
        return f"a slowdown of {limit} or more is ruled out{gain if high < 0 else ''}"
    if judgement.doubt:
        return f"undecided after {pairs} pairs, whose bounds cannot be relied on: {judgement.doubt}"
    if pairs < inputs.looks[-1]:
        why = f" ({found.program.stopped})" if found.program.stopped else ""
        return (
            f"undecided after {pairs} pairs{why}: a slowdown of {limit} is "
            "neither proven nor ruled out"
        )
    # the distance to what turns red is the distance to what passes, nearly
    if smallest_red is not None and smallest_red > 2 * tau:
        return (
            f"this runner is too noisy for {limit}: after {pairs} pairs only "
            f"{drop_pct(smallest_red):.1f} % or more would have turned red for certain"
        )
    return f"the slowdown is too close to {limit} to be told from it"


def _remarks(arms: Arms, *, faster: bool) -> list[str]:
    remarks = []
    for arm, rates in (("base", arms.base), ("head", arms.head)):
        found = noise.modes(rates)
        if found:
            apart = -100 * math.expm1(found[0] - found[1])
            remarks.append(f"runs of {arm} fall into two groups, {apart:.0f} % apart")
    if faster:
        remarks.append("an unexpected gain can mean work that is no longer done")
    return remarks
