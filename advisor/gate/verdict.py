"""Verdict of a gate, a pure function of raw values.

Nothing passes vacuously: what is missing, renamed, crashed or did less work is named. A gate that
compared nothing would be green for ever, and nobody would notice; so the absence of a figure is an
error wherever base has had it, and never a pass.

Being pure, the verdict can be computed anew from gate.json by anyone who doubts it.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from advisor import stats
from advisor.executor.background_load import loads_alike
from advisor.gate import checkout
from advisor.gate.comparison import THROUGHPUT, ComparisonKey, FigureComparison
from advisor.gate.schema import (
    ARMS,
    Arm,
    Cause,
    GateMode,
    GateRecord,
    GateVerdict,
    Inputs,
    PairEntry,
    ProgramEntry,
    Rate,
    RunEntry,
    WorkloadVerdict,
)
from advisor.gate.sequential_test import LOOKS, judge, level
from advisor.machine.contention import in_words
from advisor.machine.readings import HARMFUL_EVENT_REASONS
from advisor.model import Telemetry
from advisor.numbers import number, plural
from advisor.settings import GateLimits

POWER_CAP = "software power cap"
"""Normal under load; an arm that it holds back is really slower."""

# By judgement, all of them. They decide which pairs count and never in favour of an arm: each
# looks at both alike.
REASON_SHARE = 0.01
"""Share of busy samples from which a reason that held the clocks spoils a run."""
CLOCK_OFFSET = 0.01
"""Relative difference of both arms' clocks that spoils a pair: a fifth of the usual threshold.

Judgement: smaller repeats pairs for noise of the readings, larger takes a clock for the change."""
CLOCK_SPREAD_PCT = 5.0
"""Spread of the clock within one run, in percent, that spoils its pair.

Judgement: smaller discards most pairs of a card that follows its load, larger counts a run in
which the card slowed down."""
DISCARDS_ALLOWED = 0.25
"""Share of pairs that a card may spoil before the runner is called unsteady.

Judgement: smaller gives up for one or two bad pairs, larger spends the job's time on repeats."""
BUSY_SAMPLES = 30
"""Busy NVML samples of a run, below which its clocks are called unverified: three seconds.

Judgement: fewer verifies a run whose clocks were hardly seen, more verifies no short program."""
STEAL_ALIKE = 0.05
"""Largest difference of stolen shares of arms disturbed alike.

Judgement: smaller repeats pairs that a crowded host slowed equally, larger counts pairs in which it
slowed one arm."""


def why_again(base: RunEntry, head: RunEntry, *, needs_quiet: bool = False) -> str | None:
    """Reason to repeat this pair; with `needs_quiet` any disturbance is one."""
    if by_card := why_discard(base.gpu, head.gpu):
        return by_card
    stolen = [run.others.steal_share or 0.0 for run in (base, head)]
    alike = loads_alike([run.others.others_cpus for run in (base, head)])
    alike = alike and abs(stolen[0] - stolen[1]) <= STEAL_ALIKE
    return None if alike and not needs_quiet else why_disturbed(base, head)


def why_discard(base: Telemetry, head: Telemetry) -> str | None:
    """Reason by the card: what held its clocks, others at work on it, or clocks that differ."""
    for arm, readings in (("base", base), ("head", head)):
        for reason, share in readings.event_reasons:
            if reason in HARMFUL_EVENT_REASONS and share > REASON_SHARE:
                return f"{reason} in {100 * share:.0f} % of the busy samples of {arm}"
        if readings.foreign_pids:
            return f"{readings.foreign_pids} foreign process(es) on the GPU during {arm}"
    return _clock_offset(base, head)


def _clock_offset(base: Telemetry, head: Telemetry) -> str | None:
    """Reason by clocks that moved within a run or differ between the arms; None at a power cap.

    At the cap clocks follow the work: an arm that draws more is held back more, and is slower.
    """
    if not base.sm_clock_mhz or head.sm_clock_mhz is None:
        return None
    if max(dict(r.event_reasons).get(POWER_CAP, 0.0) for r in (base, head)) > REASON_SHARE:
        return None
    for arm, readings in (("base", base), ("head", head)):
        spread = readings.sm_clock_spread_pct
        if spread is not None and spread > CLOCK_SPREAD_PCT:
            return f"the SM clock moved by {spread:.0f} % during {arm}"
    offset = head.sm_clock_mhz / base.sm_clock_mhz - 1
    if abs(offset) <= CLOCK_OFFSET:
        return None
    return f"the SM clock of head was {100 * offset:+.1f} % off that of base"


def why_disturbed(base: RunEntry, head: RunEntry) -> str | None:
    """What others did on the CPUs during the runs, in words; None if nothing."""
    disturbed = [run for run in (base, head) if run.others.disturbed]
    return (
        " and ".join(f"{in_words(run.others)} during {run.arm}" for run in disturbed)
        or None
    )


def too_many_discarded(pairs: Sequence[PairEntry]) -> bool:
    """True if too many pairs were discarded.

    Others on the CPUs may spoil as many as the last look needs: it costs only time.
    """
    fell = [pair for pair in pairs if pair.discarded]
    by_card = [
        pair for pair in fell if pair.discarded != why_disturbed(pair.base, pair.head)
    ]
    allowed = math.ceil(DISCARDS_ALLOWED * max(len(pairs), LOOKS[0]))
    return len(by_card) > allowed or len(fell) > LOOKS[-1]


def statement(pairs: Sequence[PairEntry]) -> str:
    """State of the counted pairs, with the reason: `GateRecord.validity`.

    `verified` says that every reading was there and that none objected.
    """
    kept = [pair for pair in pairs if not pair.discarded]
    runs = [run for pair in kept for run in pair.runs]
    if not runs:
        return "unverified: nothing was measured"
    busy = sum(why_disturbed(*pair.runs) is not None for pair in kept)
    if busy:
        worst = max(runs, key=lambda run: run.others.others_cpus or 0.0).others
        which = f"in {busy} of {len(kept)} pairs and in both arms alike"
        return f"busy: {in_words(worst)} at most, {which}"
    on_card = [run.gpu for run in runs if run.on_gpu or run.gpu.busy_samples]
    blind = next((reading for reading in on_card if reading.sm_clock_mhz is None), None)
    if blind:
        return f"unverified: {next(iter(dict(blind.gaps).values()), 'NVML gave no clock readings')}"
    samples = [reading.busy_samples for reading in on_card]
    known = [count for count in samples if count is not None]
    if len(known) < len(samples):
        return "unverified: the driver does not say when the card was at work"
    if (fewest := min(known, default=BUSY_SAMPLES)) < BUSY_SAMPLES:
        return f"unverified: only {fewest} busy NVML samples in a run, {BUSY_SAMPLES} are needed"
    if not on_card and any(run.others.disturbed is None for run in runs):
        return "unverified: the load of others on the CPUs was not measured"
    return "verified"


PRECEDENCE: tuple[GateVerdict, ...] = get_args(GateVerdict)
WORK_TOLERANCE = 0.01
"""Share of units that a run which ended by itself may lack beside base's.

Judgement: too small makes a run that ends amid a batch an error, too large lets head skip work."""


def decide(
    programs: Sequence[ProgramEntry], inputs: Inputs, mode: GateMode = "ab"
) -> GateRecord:
    """Verdict on all `programs`; on equal code none is a regression.

    Workloads whose rates trend along their items are judged a second time, without what later
    items may explain. In the mode `noise` both arms are one code, so a regression tells that
    nothing can be measured on this runner.
    """
    comparisons = [
        comparison for program in programs for comparison in matched(program, inputs)
    ]
    comparable = [
        comparison for comparison in comparisons if isinstance(comparison, FigureComparison)
    ]
    verdicts = [
        comparison for comparison in comparisons if isinstance(comparison, WorkloadVerdict)
    ]
    taus = {comparison.workload: comparison.tau for comparison in comparable}
    judgements = judge(
        {comparison.workload: comparison.differences for comparison in comparable}, taus
    )
    trending = {
        comparison.workload: comparison.of_equal_items
        for comparison in comparable
        if any(comparison.later_items)
    }
    fair = judge(trending, {workload: taus[workload] for workload in trending})
    for comparison in comparable:
        smallest = _smallest_threshold(comparison) if mode == "noise" else []
        found_fair = fair.get(comparison.workload)
        verdicts.append(
            comparison.verdict(judgements[comparison.workload], smallest, fair=found_fair)
        )
    record = GateRecord(
        verdict="error",
        reason="nothing was compared: no workload was measured in both arms",
        discarded_pairs=sum(len(program.pairs) - len(program.kept) for program in programs),
        mode=mode,
        inputs=inputs,
        validity=statement([pair for program in programs for pair in program.pairs]),
        programs=list(programs),
        notes=[note for note in comparisons if isinstance(note, str)],
    )
    record = led(record, verdicts) if verdicts else record
    if mode == "noise" and record.verdict == "regression":
        reason = "equal runs came out as a regression: this runner cannot be measured on"
        return record.model_copy(update={"verdict": "invalid", "reason": reason})
    return record


def led(record: GateRecord, verdicts: Sequence[WorkloadVerdict]) -> GateRecord:
    """`record` with these verdicts, and at its head those of the worst of them."""
    workloads = sorted(verdicts, key=_worst_first)
    worst = workloads[0]
    shared = ("verdict", "slowdown_pct", "ci_low_pct", "ci_high_pct", "confidence", "pairs")
    facts: dict[str, object] = {name: getattr(worst, name) for name in shared}
    reason = f"{worst.name}: {worst.reason}"
    return record.model_copy(update={**facts, "reason": reason, "workloads": workloads})


def settled(record: GateRecord, program: ProgramEntry) -> bool:
    """True if more pairs change nothing; a fixed number is run whole."""
    verdicts = {w.verdict for w in record.workloads if w.program == program.name}
    if record.mode != "ab":
        return bool(verdicts & {"error", "no-baseline", "invalid"})
    return bool(verdicts) and "inconclusive" not in verdicts


def _worst_first(workload: WorkloadVerdict) -> tuple[int, float, str]:
    slowdown = workload.slowdown_pct
    worsening = math.inf if slowdown is None else -slowdown
    return PRECEDENCE.index(workload.verdict), worsening, workload.name


def _smallest_threshold(compared: FigureComparison) -> list[str]:
    """Smallest threshold in percent that equal runs pass, whichever is head."""
    pairs = len(compared.differences)
    look = max(n for n in LOOKS if n <= max(pairs, LOOKS[0]))
    bounds = stats.walsh_interval(compared.differences, level(look, "pass"))
    high = compared.worse_pct(max(-bounds.low, bounds.high))
    if high is None:
        return []
    return [
        f"smallest threshold that equal code passes: --threshold {max(1, math.ceil(high))}%"
    ]


class Closed(NamedTuple):
    """Verdict that no pair can change."""

    verdict: GateVerdict
    cause: Cause
    reason: str


def without_pairs(program: ProgramEntry, inputs: Inputs) -> Closed | None:
    """Verdict that no pair can change; None if its pairs decide."""
    whole = ComparisonKey(program.name)
    if program.error:
        return Closed("error", "not-measured", program.error)
    if program.no_baseline:
        return _without_base(whole, "base-lacks-it", program.no_baseline, program, inputs)
    if same := checkout.why_same_code(program):
        return Closed("invalid", "same-code", same)
    counted = [*program.warm_ups, *(run for pair in program.kept for run in pair.runs)]
    for run in sorted(counted, key=lambda run: run.arm, reverse=True):
        if run.problem:
            failed = f"{run.arm} failed ({run.problem.kind}): {run.problem.evidence}"
            if run.arm == "head":
                return Closed("error", "head-failed", failed)
            return _without_base(whole, "base-failed", failed, program, inputs)
    if too_many_discarded(program.pairs):
        reasons = sorted({pair.discarded for pair in program.pairs if pair.discarded})
        count = f"{len(program.pairs) - len(program.kept)} of {len(program.pairs)}"
        discarded = f"{count} pairs discarded: {'; '.join(reasons)}"
        return Closed("invalid", "unsteady", discarded)
    return None


LACKS_DATA = (
    "this would be green for ever: restore what base needs (data that git ignores: "
    "--link PATH)"
)
OTHER_KIND = "nothing would be compared any more: let head measure it as base does"


def _without_base(
    workload: ComparisonKey,
    cause: Cause,
    reason: str,
    program: ProgramEntry,
    inputs: Inputs,
    remedy: str = LACKS_DATA,
) -> Closed:
    """Verdict on a missing base: no baseline if new, else an error."""
    in_base = (workload.benchmark or program.name) in program.known
    if (
        not in_base
        or program.name in inputs.allow_removed
        or _may_be_missing(workload, inputs)
    ):
        return Closed("no-baseline", cause, reason)
    name = workload.name
    accept = f"or accept it with --allow-removed {name!r}"
    stated = f"{reason}. {name!r} is not new, so {remedy}, {accept}"
    return Closed("error", cause, stated)


def _may_be_missing(workload: ComparisonKey, inputs: Inputs) -> bool:
    """True if the call declared that it was removed."""
    return bool({workload.name, workload.benchmark} & set(inputs.allow_removed))


def matched(
    program: ProgramEntry, inputs: Inputs
) -> Iterator[FigureComparison | WorkloadVerdict | str]:
    """Comparisons, verdicts without comparison, and notes.

    Whatever either arm has measured is matched, so that nothing passes by being left out. It is
    no comparison where an arm lacks it, measures it otherwise, or does less work in it.
    """
    closed, pairs = without_pairs(program, inputs), len(program.kept)
    if not pairs and not closed:
        stated = f"no pair was measured ({program.stopped or 'not begun'})"
        closed = Closed("inconclusive", "not-measured", stated)
    if closed:
        yield ComparisonKey(program.name).verdict(**closed._asdict(), pairs=pairs)
        return
    limits = inputs.limits.get(program.name, GateLimits())
    figures = limits.shares()
    share = figures.pop(THROUGHPUT, inputs.threshold)
    runs: dict[Arm, list[RunEntry]] = {
        arm: [getattr(pair, arm) for pair in program.kept] for arm in ARMS
    }
    shares: dict[ComparisonKey, float] = {}
    for run in (*runs["base"], *runs["head"]):
        for key in run.rates:
            workload = ComparisonKey(program.name, None if key == program.name else key)
            shares[workload] = limits.benchmarks.get(key, share)
    for figure, allowed in figures.items():
        shares[ComparisonKey(program.name, figure=figure)] = allowed
    unused = set(limits.benchmarks)
    for workload, threshold in shares.items():
        rates = {arm: list(filter(None, map(workload.read, runs[arm]))) for arm in ARMS}
        if not rates["head"] and _may_be_missing(workload, inputs):
            yield f"{workload.name} was removed, as declared"
            continue
        problem, remedy = _absent(workload.name, rates, pairs), LACKS_DATA
        if not problem and (problem := _different(rates, runs)):
            remedy = OTHER_KIND
        problem = problem or _less_work(rates)
        if problem and problem.verdict == "no-baseline" and rates["head"]:
            problem = _without_base(
                workload, problem.cause, problem.reason, program, inputs, remedy
            )
        if problem:
            yield workload.verdict(**problem._asdict(), pairs=pairs)
            continue
        unused -= {workload.benchmark}
        yield FigureComparison(
            workload=workload, program=program, threshold=threshold, rates=rates
        )
    long = [arm for arm in ARMS if any(run.loaded and run.loaded.cut for run in runs[arm])]
    if long:
        yield (
            f"{program.name}: {' and '.join(long)} loaded too many files: not all were checked "
            "for code of the other arm"
        )
    for name in sorted(unused):
        yield f"gpu-advisor.toml bounds {name!r}, which was not compared"


def _absent(name: str, rates: Mapping[Arm, list[Rate]], runs: int) -> Closed | None:
    """Verdict on a figure that runs of an arm lack; None if all have it.

    What head lacks is an error: else a slow benchmark would pass by being removed. What base
    lacks is new, and there is nothing to compare it with.
    """
    base, head = (len(rates[arm]) for arm in ARMS)
    if base == head == runs:
        return None
    if not head and base:
        stated = (
            f"missing in head: base measures it, head does not. If {name!r} was removed on "
            f"purpose, declare it with --allow-removed {name!r}"
        )
        return Closed("error", "head-lacks-it", stated)
    if not base and not head:
        return Closed("no-baseline", "base-lacks-it", "neither base nor head measured it")
    if head < runs:
        return Closed(
            "error", "head-lacks-it", f"only {head} of {runs} runs of head measured it"
        )
    return Closed(
        "no-baseline", "base-lacks-it", f"{base} of {runs} runs of base measured it"
    )


def _different(
    rates: Mapping[Arm, list[Rate]], runs: Mapping[Arm, list[RunEntry]]
) -> Closed | None:
    """Rates of different kinds are never compared."""
    kinds: dict[Arm, set[tuple[str | None, str, str, str]]] = {}
    for arm in ARMS:
        pairs = zip(runs[arm], rates[arm], strict=True)
        kinds[arm] = {
            (run.source, rate.unit, rate.better, rate.counted or "") for run, rate in pairs
        }
    if kinds["base"] == kinds["head"] and len(kinds["head"]) == 1:
        return None
    base, head = (
        " and ".join(
            sorted(
                f"{plural(unit)} by {source}{f' ({counted})' * bool(counted)}"
                for source, unit, _, counted in kinds[arm]
            )
        )
        for arm in ARMS
    )
    cut = {arm: max(run.cut_lines for run in runs[arm]) for arm in ARMS}
    long = [f"{cut[arm]} of {arm}" for arm in ARMS if cut[arm]]
    why = f" (lines too long to be searched whole: {', '.join(long)})" if long else ""
    stated = f"base was measured in {base}, head in {head}{why}"
    return Closed("no-baseline", "other-unit", stated)


def _less_work(rates: Mapping[Arm, list[Rate]]) -> Closed | None:
    """Error where head finished fewer units in a run of its own length; None otherwise.

    A run of fixed time finishes less where it is slower. That is no loss of work but the very
    slowdown that is measured, so head may have less by as much as its rate is lower.
    """
    work = {}
    for arm in ARMS:
        amounts = [rate.work for rate in rates[arm] if rate.work is not None]
        if len(amounts) < len(rates[arm]):
            return None
        work[arm] = statistics.median(amounts)
    base, head = (statistics.median(rate.mean for rate in rates[arm]) for arm in ARMS)
    if work["head"] / work["base"] >= min(1.0, head / base) * (1 - WORK_TOLERANCE):
        return None
    units = plural(rates["head"][0].unit)
    stated = (
        f"work not done: head finished {number(work['head'])} {units} in a run, "
        f"base {number(work['base'])}"
    )
    return Closed("error", "less-work", stated)
