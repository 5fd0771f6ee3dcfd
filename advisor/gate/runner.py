"""Runner of a gate: pairs until the test decides.

The order within pairs is random and seeded, in blocks of two pairs that hold both orders, so that
no drift and no effect of the place favours an arm.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.errors import InterruptedByUserError, StateBusyError
from advisor.executor.engines import EngineSettings, make_engine
from advisor.executor.executor import WAIT_SHARE
from advisor.gate import code_identity, validity
from advisor.gate.process import WHOLE
from advisor.gate.schema import ARMS, GateRecord, PairEntry, ProgramEntry, RunEntry
from advisor.gate.verdict import Decided, decide

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from advisor.executor.engines import Engine
    from advisor.gate.config import Program
    from advisor.gate.process import ProcessRunner
    from advisor.gate.schema import HostEntry, Inputs, Mode, Variant
    from advisor.model import MeasurePlan

MARGIN = 1.2
"""A pair may take this much longer than the longest so far and still fit the budget."""
HANG_FACTOR = 3.0
"""A run hangs that takes this many times as long as the longest before it."""
SHORT_RUN_S = 10.0
"""A program that ends within this is run to its end, whatever the budget."""
LOCK_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Places of one call, and its progress."""

    cwd: Path
    scratch: Path
    cancel: threading.Event
    say: Callable[[str], None]
    steering: tuple[Path, ...] = ()
    """Files that steer later steps of the job."""


def orders(seed: int) -> Iterator[tuple[Variant, Variant]]:
    """Random orders within pairs, balanced in blocks.

    Both orders stand in each block of two.
    """
    rng = random.Random(seed)  # noqa: S311  no secret hangs on it
    first: tuple[Variant, Variant] = ARMS
    second: tuple[Variant, Variant] = ("head", "base")
    while True:
        block = [first, second]
        rng.shuffle(block)
        yield from block


@dataclass(kw_only=True)
class Session:
    """Timed part of a gate.

    `programs` holds what was measured, also after an interruption.
    """

    processes: ProcessRunner
    selected: tuple[Program, ...]
    inputs: Inputs
    say: Callable[[str], None]
    why_base_fails: Callable[[str], str | None] = lambda _: None
    """Cause and remedy of a failure message of base; None: not known."""
    fixed_pairs: int | None = None
    """Measure this many pairs that count, whatever their rates."""
    may_match_contention: bool = True
    """Pairs disturbed alike count where the machine stays busy."""
    programs: dict[str, ProgramEntry] = field(default_factory=dict)
    plans: dict[str, MeasurePlan] = field(default_factory=dict)
    deadline: float = field(default=0.0, init=False)
    """End of the budget on the monotonic clock; it begins with the first warm-up."""

    def __post_init__(self) -> None:
        for program in self.selected:
            self.programs.setdefault(
                program.name,
                ProgramEntry(
                    name=program.name, command=program.command, definition=program.definition
                ),
            )

    @property
    def remaining_s(self) -> float:
        """Budget left."""
        return self.deadline - time.monotonic()

    def decided(self) -> Decided:
        """The verdict so far."""
        return decide(tuple(self.programs.values()), self.inputs)

    def update(self, name: str, **facts: object) -> None:
        """Replace facts of the entry of program `name`."""
        self.programs[name] = self.programs[name].model_copy(update=facts)

    def fail_base(self, name: str, failed: str, message: str) -> None:
        """Close a program whose base `failed` with `message`."""
        cause = None if name in self.inputs.allow_removed else self.why_base_fails(message)
        if cause:
            self.update(name, error=f"{failed}. {cause}")
        else:
            self.update(name, no_baseline=failed)

    def run(self) -> None:
        """Warm up open programs, then measure pairs.

        Raises InterruptedByUserError.
        """
        self.deadline = time.monotonic() + 60 * self.inputs.max_minutes
        for program in self.selected:
            if not self._closed(program.name):
                self._warm_up(program)
        self._announce()
        order = {program.name: orders(self.inputs.seed) for program in self.selected}
        pending = {name: next(each) for name, each in order.items()}
        while open_programs := self._open():
            for program in open_programs:
                pair = self._measure(program, pending[program.name])
                if pair.discarded is None:  # else the same order is measured again
                    pending[program.name] = next(order[program.name])

    # --- before the first pair ---

    def _warm_up(self, program: Program) -> None:
        """Run each arm once, uncounted.

        A program that ends in a reasonable time is always run to its end, so that its work can be
        compared; of a longer one the probe measures a window.
        """
        self.say(f"{program.name}: warming up")
        plan = WHOLE
        head = self._run(program, "head", plan, self._whole_limit_s())
        if head.problem and head.problem.kind == "timeout":
            plan = self.processes.window
            self._offer_window(program.name, head.wall_s)
            head = self._run(program, "head", plan, self.remaining_s)
        self.plans[program.name] = plan
        runs = [head]
        if not head.problem:
            limit_s = max(self.remaining_s, HANG_FACTOR * head.wall_s)
            base = self._run(program, "base", plan, limit_s)
            runs.append(base)
            self._learn_from_base(program.name, base)
        self.update(program.name, warm_ups=runs)

    def _learn_from_base(self, name: str, base: RunEntry) -> None:
        """Note base's workloads from its first run.

        A failure with a remedy is an error.
        """
        self.update(name, known=sorted({*self.programs[name].known, *base.rates}))
        if base.problem:
            failed = f"base failed ({base.problem.kind}): {base.problem.evidence}"
            self.fail_base(name, failed, base.problem.evidence)

    def _offer_window(self, name: str, seen_s: float) -> None:
        needed_min = math.ceil(2 * self._runs_to_first_look() * seen_s / 60)
        self.say(
            f"{name}: not over after {seen_s:.0f} s; the first look at whole runs needs "
            f"--max-minutes {needed_min} or more (given: {self.inputs.max_minutes:g}). A window of "
            f"{self.processes.window.measure_s:g} s is measured instead"
        )

    def _runs_to_first_look(self) -> int:
        return 2 * self.inputs.looks[0] * len(self.selected)

    def _whole_limit_s(self) -> float:
        """Longest whole run that still allows a verdict.

        Enough pairs for the first look must fit into half the budget.
        """
        return self.remaining_s / 2 / self._runs_to_first_look()

    def _announce(self) -> None:
        pair_s = sum(self._pair_s(p.name) for p in self.selected if not self._closed(p.name))
        if not pair_s:
            return

        def lasts(pairs: int) -> str:
            return f"{pairs} pairs (about {pairs * pair_s / 60:.1f} min)"

        looks = self.inputs.looks
        plan = (
            f"the first verdict can fall after {lasts(looks[0])}, the last after {lasts(looks[-1])}"
        )
        if self.fixed_pairs:
            plan = f"{lasts(self.fixed_pairs)} follow"
        self.say(f"a pair takes about {pair_s:.0f} s: {plan}")
        needed_s = pair_s * (self.fixed_pairs or looks[0])
        if needed_s > self.remaining_s:
            spent_s = 60 * self.inputs.max_minutes - self.remaining_s
            self.say(
                f"that does not fit into the {self.remaining_s / 60:.1f} min left of --max-minutes "
                f"{self.inputs.max_minutes:g}, so no pair is begun: give --max-minutes "
                f"{math.ceil((needed_s * MARGIN + spent_s) / 60)} or more, or a shorter run"
            )

    # --- pairs ---

    def _open(self) -> list[Program]:
        """Programs that another pair could still decide."""
        decided = self.decided()
        last = self.fixed_pairs or self.inputs.looks[-1]
        found = []
        for program in self.selected:
            entry = self.programs[program.name]
            kept = sum(pair.discarded is None for pair in entry.pairs)
            if self._closed(program.name) or kept >= last or self._settled(entry, decided):
                continue
            pairs = self._to_next_look(kept, last)
            needed_s = self._pair_s(program.name) * max(pairs, MARGIN)
            if needed_s > self.remaining_s:
                self.update(program.name, stopped=self._too_short(pairs, needed_s))
                continue
            found.append(program)
        return found

    def _to_next_look(self, kept: int, last: int) -> int:
        looks = () if self.fixed_pairs else self.inputs.looks
        return next((look for look in (*looks, last) if look > kept), last) - kept

    def _too_short(self, pairs: int, needed_s: float) -> str:
        left_min = max(self.remaining_s, 0) / 60
        return (
            f"the budget of {self.inputs.max_minutes:g} minutes was spent: the next look takes "
            f"{pairs} more pairs, about {needed_s / 60:.1f} min, and {left_min:.1f} are left"
        )

    def _settled(self, entry: ProgramEntry, decided: Decided) -> bool:
        if not entry.pairs:
            return False
        return decided.failed(entry) if self.fixed_pairs else decided.settled(entry)

    def _measure(self, program: Program, order: tuple[Variant, Variant]) -> PairEntry:
        """Measure one pair in this order.

        `validity` says if it counts.
        """
        entry = self.programs[program.name]
        runs: dict[str, RunEntry] = {}
        for arm in order:
            limit_s = max(self.remaining_s, HANG_FACTOR * self._longest_s(program.name))
            runs[arm] = self._run(program, arm, self.plans[program.name], limit_s)
        pair = PairEntry(
            number=len(entry.pairs) + 1,
            order="base first" if order == ARMS else "head first",
            base=runs["base"],
            head=runs["head"],
            discarded=validity.why_again(
                runs, entry, self.inputs.looks[0], may_match=self.may_match_contention
            ),
        )
        self.update(program.name, pairs=[*entry.pairs, pair])
        self.say(f"{program.name}: {_summary(pair)}")
        return pair

    def _run(self, program: Program, arm: Variant, plan: MeasurePlan, limit_s: float) -> RunEntry:
        """Run one process, stopped after `limit_s`."""
        run = self.processes.run(program, arm, plan, max(SHORT_RUN_S, limit_s))
        if run.problem and run.problem.kind == "interrupted":
            msg = "Interrupted: no verdict. The pairs measured until then are in the report."
            raise InterruptedByUserError(msg)
        return run

    # --- state ---

    def _closed(self, name: str) -> bool:
        entry = self.programs[name]
        failed = any(run.problem for run in entry.warm_ups)
        closed = entry.no_baseline or entry.error or failed or entry.stopped
        return bool(closed or code_identity.why_same_code(entry))

    def _pair_s(self, name: str) -> float:
        entry = self.programs[name]
        if entry.pairs:
            return max(pair.base.wall_s + pair.head.wall_s for pair in entry.pairs)
        return sum(run.wall_s for run in entry.warm_ups[-len(ARMS) :])

    def _longest_s(self, name: str) -> float:
        entry = self.programs[name]
        paired = [run for pair in entry.pairs for run in (pair.base, pair.head)]
        return max(run.wall_s for run in [*entry.warm_ups, *paired])


def _summary(pair: PairEntry) -> str:
    number = f"pair {pair.number} ({pair.order})"
    if pair.discarded:
        return f"{number} discarded: {pair.discarded}"
    for run in (pair.base, pair.head):
        if run.problem:
            return f"{number}: {run.arm} failed: {run.problem.kind}"
    rates = ", ".join(
        f"{key}: base {rate.mean:.4g}, head {pair.head.rates[key].mean:.4g} {rate.unit}/s"
        for key, rate in list(pair.base.rates.items())[:3]
        if key in pair.head.rates
    )
    note = validity.contention_matched(pair)
    return f"{number}: {rates}{f' ({note})' if note else ''}"


# --- a session to its record --------------------------------------------------------------


@contextlib.contextmanager
def exclusive_engine(uuid: str | None, budget_s: float, context: RunContext) -> Iterator[Engine]:
    """Hold the engine of the GPU, or of the host.

    Waits for another gate as long as the budget lasts, then raises StateBusyError.
    """
    deadline = time.monotonic() + budget_s
    waiting = False
    with contextlib.ExitStack() as stack:
        while True:
            engine = make_engine(
                EngineSettings(
                    gpu_uuid=uuid,
                    lease_wait_s=LOCK_POLL_S if waiting else 0.0,
                    cancel=context.cancel,
                    on_busy=context.say,
                    max_wait_s=WAIT_SHARE * budget_s,
                )
            )
            try:
                stack.enter_context(engine)
            except StateBusyError as problem:
                if time.monotonic() > deadline:
                    raise
                if context.cancel.is_set():
                    msg = "Interrupted while waiting for another gate: nothing was measured."
                    raise InterruptedByUserError(msg) from problem
                if not waiting:
                    context.say(f"{problem} Waiting for it.")
                waiting = True
            else:
                break
        yield engine


def measured(session: Session, host: HostEntry, mode: Mode) -> GateRecord:
    """Run the session and make its record.

    It is invalid if the session was interrupted.
    """
    interrupted = None
    try:
        session.run()
    except InterruptedByUserError as problem:
        interrupted = str(problem)
        session.say(interrupted)
    arms = session.processes.arms
    record = decided(tuple(session.programs.values()), session.inputs, host, mode)
    between = session.processes.between
    unseen = [note for p in session.programs.values() if (note := code_identity.unseen(p, between))]
    facts: dict[str, object] = {
        "base": arms["base"].revision,
        "head": arms["head"].revision,
        "notes": [*record.notes, *unseen],
    }
    if interrupted:
        facts |= {"verdict": "invalid", "reason": interrupted}
    return record.model_copy(update=facts)


def decided(
    programs: Sequence[ProgramEntry], inputs: Inputs, host: HostEntry, mode: Mode
) -> GateRecord:
    """Record with the verdict of `programs` and `inputs`."""
    found = decide(programs, inputs)
    leading = found.leading
    figures: Mapping[str, object] = {
        name: getattr(leading, name) if leading else None
        for name in ("slowdown_pct", "ci_low_pct", "ci_high_pct", "confidence")
    }
    return GateRecord(
        verdict=found.verdict,
        reason=f"{leading.name}: {found.reason}" if leading else found.reason,
        pairs=leading.pairs if leading else 0,
        discarded_pairs=found.discarded_pairs,
        workloads=list(found.workloads),
        mode=mode,
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=inputs,
        host=host,
        validity=validity.statement([pair for program in programs for pair in program.pairs]),
        programs=list(programs),
        notes=list(found.notes),
    ).model_copy(update=figures)
