"""Runner of a gate: pairs until the test decides.

Pairs of all programs take turns, so that each has some when the budget ends. A pair that does not
count is measured again in the same order of arms: with another one, noise could choose the order.
"""

import itertools
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from advisor import numbers
from advisor.errors import InterruptedByUserError
from advisor.executor.executor import Budget
from advisor.gate import config, github, verdict
from advisor.gate.config import GateProgram
from advisor.gate.process import WHOLE, WINDOW, ProcessRunner
from advisor.gate.schema import (
    ARMS,
    Arm,
    GateMode,
    GateRecord,
    Inputs,
    PairEntry,
    ProgramEntry,
    RunEntry,
)
from advisor.gate.sequential_test import LOOKS
from advisor.model import Machine, MeasurePlan, digest_of
from advisor.numbers import number
from advisor.sandbox.path_policy import SHARED_MEMORY
from advisor.sandbox.scheduling import Watch

LOOKS_OF: dict[GateMode, tuple[int, ...]] = {"ab": LOOKS, "noise": (12,), "history": (2,)}
"""Pairs at which it may end; two are a session of history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """When enough pairs were measured."""

    looks: tuple[int, ...]
    """Numbers of pairs at which it may end."""
    settled: Callable[[Sequence[ProgramEntry], str], bool]
    """True if more pairs of the named program change nothing."""
    name: str = "gate"
    """Before each line of the log."""
    more: Callable[[int], str] = "--max-minutes {}".format
    """Option that gives so many minutes."""
    quiet: bool = False
    """A pair with any load of others is measured again."""


def gate_rule(inputs: Inputs, mode: GateMode) -> StoppingRule:
    """Rule of a gate: every workload has its verdict."""

    def settled(programs: Sequence[ProgramEntry], name: str) -> bool:
        record = verdict.decide(programs, inputs, mode)
        return verdict.settled(
            record, next(program for program in programs if program.name == name)
        )

    # another day's runs are those of a quiet machine
    return StoppingRule(looks=LOOKS_OF[mode], settled=settled, quiet=mode == "history")


# By judgement. They bound the time of a job, and enter no verdict.
MARGIN = 1.2
"""The next pair may take so many times the longest so far."""
HANG_FACTOR = 3.0
"""A run hangs at so many times the longest before it."""
LEFT_BYTES = 64 << 20
"""Bytes that a pair may leave in shared memory; beyond, it does not count.

Judgement: less takes no room from the next run's data. Smaller discards pairs for their locks and
semaphores, larger leaves the next run less room for its batches."""
SHORT_RUN_S = 10.0
"""Seconds that each run may take, whatever is left of the budget.

Judgement: shorter cuts off a short program at the end of the budget, longer overruns the budget."""


def orders(seed: int) -> Iterator[tuple[Arm, Arm]]:
    """Random orders of the arms within a pair.

    Each block of two pairs holds both orders, so that no drift favours an arm. Which comes first
    in a block is drawn, as a fixed alternation could be in step with something of the host.
    """
    rng = random.Random(seed)  # noqa: S311  no secret hangs on it
    while True:
        block: list[tuple[Arm, Arm]] = [ARMS, ("head", "base")]
        rng.shuffle(block)
        yield from block


@dataclass(kw_only=True)
class GateMeasurement:
    """Timed part of a gate: warm-ups, then pairs until each program is decided.

    Programs take turns, a pair each. So a host that changes its speed meets all of them, and none
    spends the budget before the others have begun.
    """

    processes: ProcessRunner
    selected: tuple[GateProgram, ...]
    inputs: Inputs
    rule: StoppingRule
    programs: dict[str, ProgramEntry] = field(default_factory=dict, init=False)
    plans: dict[str, MeasurePlan] = field(default_factory=dict, init=False)
    budget: Budget = field(init=False)
    """Begins with the first warm-up."""
    watch: Watch = field(default_factory=Watch, init=False)
    shared_bytes: int = field(init=False)
    """In shared memory at the start."""

    def __post_init__(self) -> None:
        self.shared_bytes = shared_memory_bytes()
        base = self.processes.arms["base"]
        for program in self.selected:
            changed = config.why_not_comparable(program, base)
            self.programs[program.name] = ProgramEntry(
                name=program.name,
                command=program.workload.command,
                definition=digest_of(program.facts),
                known=[] if changed or program.in_shell else [program.name],
                no_baseline=changed,
            )

    def update(self, name: str, **facts: object) -> None:
        self.programs[name] = self.programs[name].model_copy(update=facts)

    def fail_base(self, name: str, failed: str) -> None:
        """Close a program whose base `failed`."""
        base, head = (self.processes.arms[arm] for arm in ARMS)
        path = config.left_behind(head, base, failed)
        if path is None or name in self.inputs.allow_removed:
            self.update(name, no_baseline=failed)
            return
        cause = f"{path!r}, which git ignores, is in head and not in base"
        remedy = f"share it with --link {path}, or make it in --setup"
        self.update(name, error=f"{failed}. {cause}: {remedy}")

    def run(self) -> None:
        """Warm up, then measure pairs. Raises InterruptedByUserError."""
        total_s = 60 * self.inputs.max_minutes
        self.budget = Budget(
            total_s=total_s, clock=time.monotonic, started=time.monotonic()
        )
        for program in self._open():
            self._warm_up(program)
        if changed := self.watch.changed():
            self.say(f"{changed} during the warm-up; it is put back")
        while open_programs := self._open():
            for program in open_programs:
                self._measure_pair(program)

    def _warm_up(self, program: GateProgram) -> None:
        """Run each arm once, uncounted.

        A short one runs to its end, to compare its work; else a window is measured.
        """
        runs_to_first_look = 2 * self.rule.looks[0] * len(self.selected)
        name = program.name
        limit_s = self.budget.remaining_s / 2 / runs_to_first_look
        self.say(f"{name}: warming up")
        self.plans[name] = WHOLE
        head = self._run(program, "head", limit_s)
        if head.problem and head.problem.kind == "timeout":
            needed_min = math.ceil(2 * runs_to_first_look * head.wall_s / 60)
            self.say(
                f"{name}: not over after {head.wall_s:.0f} s, so a window of "
                f"{WINDOW.measure_s:g} s is measured; whole runs need {self.rule.more(needed_min)}"
            )
            self.plans[name] = WINDOW
            head = self._run(program, "head")
        self.update(name, warm_ups=[head])
        if head.problem:
            return
        base = self._run(program, "base")
        names = sorted({*self.programs[name].known, *base.rates})
        self.update(name, warm_ups=[head, base], known=names)
        if base.problem:
            self.fail_base(
                name, f"base failed ({base.problem.kind}): {base.problem.evidence}"
            )
            return
        self.say(f"{name}: {self._price(name)}")

    def _price(self, name: str) -> str:
        """What deciding may cost, told before the first pair."""
        pair_s, fewest, largest = (
            self._pair_s(name),
            self.rule.looks[0],
            self.rule.looks[-1],
        )
        shortest, longest = (
            numbers.duration(count * pair_s) for count in (fewest, largest)
        )
        pairs = f"{fewest} to {largest} pairs" if fewest < largest else f"{largest} pairs"
        takes = f"{shortest} to {longest}" if fewest < largest else longest
        return f"a pair takes about {numbers.duration(pair_s)}, so {pairs} take {takes}"

    def _open(self) -> list[GateProgram]:
        """Programs that another pair could still decide.

        A verdict comes at a look alone. Where the budget does not hold the pairs up to the next
        one, further pairs would decide nothing, and the program is stopped with what it has.
        """
        entries, looks, still_open = tuple(self.programs.values()), self.rule.looks, []
        for program in self.selected:
            entry = self.programs[program.name]
            kept = len(entry.kept)
            if entry.stopped or kept >= looks[-1] or self.rule.settled(entries, entry.name):
                continue
            pairs = next(look for look in looks if look > kept) - kept
            needed_s = self._pair_s(program.name) * max(pairs, MARGIN)
            if needed_s > self.budget.remaining_s:
                self.update(program.name, stopped=self._too_short(pairs, needed_s))
                continue
            still_open.append(program)
        return still_open

    def _too_short(self, pairs: int, needed_s: float) -> str:
        left_s, budget = max(self.budget.remaining_s, 0), self.inputs.max_minutes
        enough = math.ceil(budget + (needed_s * MARGIN - left_s) / 60)
        return (
            f"the budget was spent: {pairs} more pairs take about {needed_s / 60:.1f} min, and "
            f"{left_s / 60:.1f} are left. Give {self.rule.more(enough)} or more, or a shorter run"
        )

    def _measure_pair(self, program: GateProgram) -> None:
        """Run the next pair; one that does not count is repeated, in the same order."""
        entry = self.programs[program.name]
        order = next(itertools.islice(orders(self.inputs.seed), len(entry.kept), None))
        runs = {arm: self._run(program, arm) for arm in order}
        left = left_in_memory(self.shared_bytes, shared_memory_bytes())
        changed = self.watch.changed() or left
        pair = PairEntry(
            number=len(entry.pairs) + 1,
            order="base first" if order == ARMS else "head first",
            **runs,
            discarded=changed or verdict.why_again(**runs, needs_quiet=self.rule.quiet),
        )
        self.update(program.name, pairs=[*entry.pairs, pair])
        self.say(f"{program.name}: {_summary(pair)}")

    def say(self, line: str) -> None:
        say(line, self.rule.name)

    def _run(
        self, program: GateProgram, arm: Arm, limit_s: float | None = None
    ) -> RunEntry:
        plan = self.plans[program.name]
        if limit_s is None:
            longest_s = max(
                (run.wall_s for run in self.programs[program.name].runs), default=0.0
            )
            limit_s = max(self.budget.remaining_s, HANG_FACTOR * longest_s)
        run = self.processes.run(program, arm, plan, max(SHORT_RUN_S, limit_s))
        if run.problem and run.problem.kind == "interrupted":
            msg = (
                "Interrupted: no verdict. The pairs measured until then are in the report."
            )
            raise InterruptedByUserError(msg)
        return run

    def _pair_s(self, name: str) -> float:
        entry = self.programs[name]
        warm_up_s = sum(run.wall_s for run in entry.warm_ups)
        pairs_s = (sum(run.wall_s for run in pair.runs) for pair in entry.pairs)
        return max(pairs_s, default=warm_up_s)


def say(line: str, name: str = "gate") -> None:
    """Tell the log one line."""
    sys.stderr.write(github.harmless(f"{name}: {line}\n"))
    sys.stderr.flush()


def _summary(pair: PairEntry) -> str:
    rates = ", ".join(
        f"{key}: base {number(rate.mean)}, head {number(pair.head.rates[key].mean)} {rate.unit}/s"
        for key, rate in list(pair.base.rates.items())[:3]
        if key in pair.head.rates
    )
    failed = [f"{run.arm} failed: {run.problem.kind}" for run in pair.runs if run.problem]
    said = (
        f" discarded: {pair.discarded}"
        if pair.discarded
        else f": {', '.join(failed) or rates}"
    )
    return f"pair {pair.number} ({pair.order}){said}"


def measured(measurement: GateMeasurement, host: Machine, mode: GateMode) -> GateRecord:
    facts: dict[str, object] = {"host": host}
    facts |= {arm: code.revision for arm, code in measurement.processes.arms.items()}
    try:
        measurement.run()
    except InterruptedByUserError as problem:
        say(str(problem))
        facts |= {"verdict": "invalid", "reason": str(problem)}
    record = verdict.decide(list(measurement.programs.values()), measurement.inputs, mode)
    return record.model_copy(update=facts)


def shared_memory_bytes() -> int:
    """Return what files in shared memory take. Where no overlay holds all runs share it."""
    try:
        space = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 0
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def left_in_memory(before_bytes: int, now_bytes: int) -> str | None:
    """Say what was left in shared memory, if it is so much that the next run has less room."""
    left_bytes = now_bytes - before_bytes
    if left_bytes <= LEFT_BYTES:
        return None
    return f"{left_bytes >> 20:,} MiB more than at the start lie in {SHARED_MEMORY}"
