"""`gpu-advisor compare --base-ref`: is a change worth keeping?

The change is the working tree, uncommitted edits included, against a commit. Both arms run the
same command, in pairs of fresh processes of random order. A sequential test ends them as soon as
the change is worth keeping or is not (`sequential_test.keep_or_drop`).

A faster change is no better if it does other work. So the work of both arms is compared by what
the probe observed, before the first pair and after each: items, updates, losses, results, the
size of the model. `docs/referee.md` says what an edit can and cannot fake.
"""

import argparse
import contextlib
import math
import secrets
import shlex
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor import numbers, quality
from advisor.commands import output
from advisor.errors import UsageError
from advisor.executor.engines import EngineSettings
from advisor.executor.engines.joint import make_engine
from advisor.executor.engines.scratch_dir import cancellable, scratch_folder
from advisor.executor.engines.turn import taken
from advisor.executor.equal_units import work_differences
from advisor.gate import checkout, config, setup_step, verdict
from advisor.gate.comparison import FigureComparison
from advisor.gate.process import ProcessRunner
from advisor.gate.runner import GateMeasurement, StoppingRule, say
from advisor.gate.schema import (
    ARMS,
    Arm,
    Cause,
    GainEntry,
    Inputs,
    ProgramEntry,
    RatePair,
    RefereeCause,
    RefereeRecord,
    Ruling,
)
from advisor.gate.sequential_test import (
    DROPPED_BY_CHANCE,
    KEPT_BY_CHANCE,
    RULING_LOOKS,
    ChangeRuling,
    keep_or_drop,
)
from advisor.machine.host import read_machine
from advisor.model import Effects, Run
from advisor.settings import Workload
from advisor.tuner import output_check, same_work

NAME = "compare"
KEEP_IF = 0.02
"""Gain worth keeping where none is asked for: a small one that 48 pairs often still prove.

Record: docs/referee.md: a true 2 % is kept in 60 % of calls where processes differ by 3 %, and in
98 % where they differ by 0.8 %."""
EXIT_CODES: dict[Ruling, int] = {"keep": 0, "drop": 1, "undecided": 3}
DEFAULT_BUDGET_S = 600.0
"""Budget where none is given.

Judgement: 48 pairs of a program that runs for six seconds. Of longer ones more calls end undecided.
"""
LATE_S, LATE_SHARE = 0.5, 0.1
"""Time behind the last step that head may take longer than base: in seconds, and of its steps.

Judgement: too small drops a change for a slow end of the process, too large keeps one that puts
its work off."""
LATE_LOOKS = 2
"""Runs of each arm that tell it, since one may have been stalled.

A keep needs seven pairs, so none comes before."""
OUTPUT_TIE = 0.01
"""Relative distance of equal inputs' outputs that rounding explains.

Judgement, as for numbers in result files (`policy.ROUNDING_RELATIVE`): too small drops a change of
kernels, too large keeps one that computes something else."""

RULED_BY: dict[Cause, Ruling] = {
    "less-work": "drop",
    "other-unit": "drop",
    "head-failed": "drop",
    "head-lacks-it": "drop",
}
"""Ruling where no pair can decide; others leave it undecided: base or the machine is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefereeVerdict:
    """Ruling on a change, with its cause and sentence."""

    ruling: Ruling
    cause: RefereeCause
    reason: str
    decision: ChangeRuling | None = None
    """None where no pair was needed, or none was measured."""


def run(args: argparse.Namespace, command: Sequence[str] | None) -> int:
    """Referee the working tree against `args.base_ref`; 0 keep, 1 drop, 3 undecided."""
    started = time.monotonic()
    wanted = KEEP_IF if args.keep_if is None else args.keep_if
    budget_s = args.budget or DEFAULT_BUDGET_S
    inputs = Inputs(
        threshold=wanted, seed=secrets.randbelow(2**31), max_minutes=budget_s / 60
    )
    with contextlib.ExitStack() as stack:
        cancel = stack.enter_context(cancellable())
        scratch = stack.enter_context(scratch_folder())
        head = checkout.head_checkout(Path.cwd())
        shared = checkout.shared_data(head, args.link)
        names = [args.workload] if args.workload else []
        line = shlex.join(command) if command else None
        (program, *others) = config.choose(head, names, line, typed="`-- CMD`")
        if others:
            msg = f"One workload is compared at a time, not {1 + len(others)}. Name one."
            raise UsageError(msg)
        base = stack.enter_context(checkout.base_of(head, args.base_ref, args.link))
        arms: dict[Arm, checkout.Checkout] = {"base": base, "head": head}
        between = checkout.difference(base, head, shared)
        host = read_machine()
        uuid = host.gpus[0].uuid if host.gpus else None
        processes = ProcessRunner(
            engine=make_engine(EngineSettings(gpu_uuid=uuid, cancel=cancel)),
            between=between,
            arms=arms,
            scratch=scratch,
            keep_network=True,
            shown=tuple(map(str, shared)),
        )
        wait_s = args.wait
        stack.enter_context(
            taken(processes.engine, wait_s, cancel, lambda text: say(text, NAME))
        )
        judge = Judge(processes=processes, workload=program.workload, inputs=inputs)
        rule = StoppingRule(
            looks=RULING_LOOKS, settled=judge.settled, name=NAME, more=_budget_of
        )
        measurement = GateMeasurement(
            processes=processes, selected=(program,), inputs=inputs, rule=rule
        )
        if between is not None and not between.changed:
            reason = "no file differs between base and the working tree"
            ruled = RefereeVerdict(ruling="drop", cause="no-change", reason=reason)
        else:
            measurement.run()
            ruled = judge.verdict(measurement.programs[program.name])
        entry = measurement.programs[program.name]
        notes = setup_step.isolation_notes(
            Path.cwd(), setup_step.unprotected(Path.cwd()), ()
        )
    record = record_of(ruled, entry, arms, wanted).model_copy(
        update={
            "seconds": round(time.monotonic() - started, 1),
            "next": next_command(ruled, args, wanted, line),
            "notes": notes,
        }
    )
    output.show(record.model_dump(), as_text(record), as_json=args.json)
    return EXIT_CODES[ruled.ruling]


def _budget_of(minutes: int) -> str:
    return f"--budget {minutes}m"


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Rules on the pairs so far."""

    processes: ProcessRunner
    workload: Workload
    inputs: Inputs

    def settled(self, programs: Sequence[ProgramEntry], name: str) -> bool:
        """Return True where more pairs of this program could change nothing."""
        entry = next(program for program in programs if program.name == name)
        ruled = self.verdict(entry)
        if ruled.ruling == "undecided":
            return bool(verdict.without_pairs(entry, self.inputs))
        return True

    def verdict(self, entry: ProgramEntry) -> RefereeVerdict:
        """Ruling on the pairs so far: other work first, since no gain excuses it."""
        if other := next(self._other_work(), None):
            return other
        comparisons = list(verdict.matched(entry, self.inputs))
        for failed in comparisons:
            if not isinstance(failed, (FigureComparison, str)):
                ruling = RULED_BY.get(failed.cause, "undecided")
                spent = failed.cause == "not-measured" and entry.stopped is not None
                cause = "budget" if spent else failed.cause
                return RefereeVerdict(ruling=ruling, cause=cause, reason=failed.reason)
        rates = [rate for rate in comparisons if isinstance(rate, FigureComparison)]
        return self._by_gain(rates, entry)

    def _by_gain(
        self, rates: Sequence[FigureComparison], entry: ProgramEntry
    ) -> RefereeVerdict:
        """Ruling on the log gains of the pairs, of a suite on their mean: benchmarks count alike.

        It is ruled twice, with and without the gain that items of unequal cost may explain.
        Where the two rulings differ, nothing is decided, whichever the noise would allow.
        """
        if not rates:
            reason = f"no pair was measured ({entry.stopped or 'not begun'})"
            return RefereeVerdict(ruling="undecided", cause="not-measured", reason=reason)
        pairs = zip(*(rate.differences for rate in rates), strict=True)
        gains = [-math.fsum(pair) / len(pair) for pair in pairs]
        owed = zip(*(rate.later_items for rate in rates), strict=True)
        fair = [
            gain - math.fsum(items) / len(items)
            for gain, items in zip(gains, owed, strict=True)
        ]
        wanted = math.log1p(self.inputs.threshold)
        decision = keep_or_drop(gains, wanted)
        share = numbers.percent(self.inputs.threshold)
        if any(fair[i] != gains[i] for i in range(len(gains))):
            other = keep_or_drop(fair, wanted)
            if other.ruling != decision.ruling:
                reason = (
                    "base and head were measured on items of unequal cost, which may explain "
                    "the difference. Shuffle the data, or let a run go to its end"
                )
                return RefereeVerdict(
                    ruling="undecided",
                    cause="unequal-items",
                    reason=reason,
                    decision=decision,
                )
        reasons: dict[Ruling, tuple[RefereeCause, str]] = {
            "keep": ("gain-proven", "a gain is proven"),
            "drop": ("gain-ruled-out", f"a gain of {share} is ruled out"),
            "undecided": ("noise", f"a gain of {share} is neither proven nor ruled out"),
        }
        cause, reason = reasons[decision.ruling]
        if decision.ruling == "drop" and decision.gain.n < RULING_LOOKS[0]:
            cause, reason = "evidently-slower", "it is evidently slower in each pair"
        elif decision.ruling == "undecided" and entry.stopped:
            cause, reason = "budget", f"{reason}: {entry.stopped}"
        elif decision.ruling == "undecided" and decision.correlated:
            reason = f"{reason}: consecutive pairs are alike, so they are not independent"
        return RefereeVerdict(
            ruling=decision.ruling, cause=cause, reason=reason, decision=decision
        )

    def _other_work(self) -> Iterator[RefereeVerdict]:
        """Ways in which head's work is not base's, by what the probe saw of both."""
        base, head = (self.processes.seen[arm] for arm in ARMS)
        if not base or not head:
            return
        if smaller := smaller_model(base[-1].effects, head[-1].effects):
            yield RefereeVerdict(ruling="drop", cause="smaller-model", reason=smaller)
        for sentence in work_differences(base, head):
            yield RefereeVerdict(ruling="drop", cause="other-work", reason=sentence)
        for difference in same_work.differences(base, head[-1]):
            if difference.cause not in self.workload.accept:
                yield RefereeVerdict(
                    ruling="drop", cause="other-work", reason=difference.sentence
                )
        if lost := output_check.output_regression(base, head[-1]):
            yield RefereeVerdict(ruling="drop", cause="other-outputs", reason=lost)
        if apart := outputs_apart(base, head[-1]):
            reason = (
                f"outputs of the same inputs differ by {numbers.percent(apart)}, "
                "which is more than rounding"
            )
            yield RefereeVerdict(ruling="drop", cause="other-outputs", reason=reason)
        # last: it alone is told by a clock, which a stall moves, too
        if late := later_end(base, head):
            yield RefereeVerdict(ruling="drop", cause="work-after-the-steps", reason=late)


def smaller_model(base: Effects, head: Effects) -> str:
    """Sentence on parameters that head lacks; empty if it lacks none.

    The root module and the sum of all are both fewer in a smaller model. The root alone is fewer
    where the same layers are called apart, the sum alone where one run ended before another
    module's first call.
    """
    figures = (
        (base.parameters, head.parameters),
        (base.all_parameters, head.all_parameters),
    )
    if not all(old and new and new < old for old, new in figures):
        return ""
    return f"the model has {head.all_parameters:,} parameters, and {base.all_parameters:,} in base"


def later_end(base: Sequence[Run], head: Sequence[Run]) -> str:
    """Sentence on work put off until the last step is over; empty if there is none.

    A rate counts the time of the steps. Only runs that went to their own end show what came later.
    A stall of the machine may come there, too, so one run of an arm tells nothing: of two the
    kinder one counts on either side, of more the median.
    """
    base_s, head_s = (
        [
            run.wall_s - run.window_ended_s
            for run in runs
            if run.to_its_end and run.window_ended_s is not None
        ]
        for runs in (base, head)
    )
    if min(len(base_s), len(head_s)) < LATE_LOOKS:
        return ""
    before_s, after_s = statistics.median_high(base_s), statistics.median_low(head_s)
    steps_s = head[-1].window_end - head[-1].window_start
    if after_s - before_s <= max(LATE_S, LATE_SHARE * steps_s):
        return ""
    return (
        f"it works for {after_s:.1f} s after its last step, and base for {before_s:.1f} s"
    )


def outputs_apart(base: Sequence[Run], head: Run) -> float | None:
    """Relative difference of outputs of the first equal inputs; None if only rounding.

    Base must agree with itself: outputs that differ from run to run tell nothing.
    """
    if head.trains or len(base) < 2:
        return None
    of_base = quality.output_errors(base[-2].effects, base[-1].effects)
    error = quality.output_errors(base[-1].effects, head.effects)
    if not of_base or not error or max(of_base) > OUTPUT_TIE or max(error) <= OUTPUT_TIE:
        return None
    return max(error)


def record_of(
    ruled: RefereeVerdict,
    entry: ProgramEntry,
    arms: Mapping[Arm, checkout.Checkout],
    wanted: float,
) -> RefereeRecord:
    units: set[str] = set()
    for run in (run for pair in entry.kept for run in pair.runs):
        units |= {rate.unit for rate in run.rates.values()}
    return RefereeRecord(
        verdict=ruled.ruling,
        cause=ruled.cause,
        reason=ruled.reason,
        gain=_gain(ruled.decision) if ruled.decision else None,
        keep_if=wanted,
        wrong_at_most=KEPT_BY_CHANCE if ruled.ruling == "keep" else DROPPED_BY_CHANCE,
        command=entry.command,
        base=arms["base"].revision,
        head=arms["head"].revision,
        unit=units.pop() if len(units) == 1 else None,
        counted_by=entry.kept[0].head.source if entry.kept else None,
        pairs=[
            RatePair(
                order=pair.order,
                discarded=pair.discarded,
                **{
                    run.arm: {name: rate.mean for name, rate in run.rates.items()}
                    for run in pair.runs
                },
            )
            for pair in entry.pairs
        ],
        processes=len(entry.runs),
    )


def _gain(decision: ChangeRuling) -> GainEntry:
    return GainEntry(
        ratio=math.exp(decision.gain.estimate),
        low=_ratio(decision.gain.low),
        high=_ratio(decision.gain.high),
        confidence=decision.confidence,
    )


def _ratio(log: float) -> float | None:
    """None of an unbounded side: JSON has no infinity."""
    return math.exp(log) if math.isfinite(log) else None


def next_command(
    ruled: RefereeVerdict, args: argparse.Namespace, wanted: float, line: str | None
) -> str | None:
    """What to type next; None where a person has to look."""
    if ruled.cause not in {"noise", "budget"}:
        return None
    minutes = math.ceil(2 * (args.budget or DEFAULT_BUDGET_S) / 60)
    words = ["gpu-advisor", "compare", "--base-ref", args.base_ref]
    words += ["--keep-if", f"{100 * wanted:g}%", "--budget", f"{minutes}m"]
    words += [word for path in args.link for word in ("--link", path)]
    words += ["--workload", args.workload] if args.workload else []
    return shlex.join(words) + (f" -- {line}" if line else "")


WORDS: dict[Ruling, str] = {"keep": "Keep it", "drop": "Drop it", "undecided": "Undecided"}


def as_text(record: RefereeRecord) -> str:
    gain, counted = record.gain, [pair for pair in record.pairs if not pair.discarded]
    lines = [f"{WORDS[record.verdict]}: {record.reason}."]
    if gain:
        low, high = (
            "any" if side is None else f"{side:.3f}" for side in (gain.low, gain.high)
        )
        lines.append(
            f"{gain.ratio:.3f}x as fast as base ({low} to {high}, {100 * gain.confidence:.4g} % "
            f"certain), in {numbers.many(len(counted), 'pair')} of fresh processes."
        )
    base = f"{record.base.ref} ({(record.base.sha or '')[:12]})"
    lines.append(
        f"Base is {base}; {numbers.percent(record.keep_if)} or more is worth keeping. "
        f"{numbers.many(record.processes, 'process')} took {numbers.duration(record.seconds)}."
    )
    lines += record.notes
    lines += [f"To decide it: {record.next}"] if record.next else []
    return "\n".join(lines)
