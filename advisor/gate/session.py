"""Measures pairs until the rule has decided, the budget is spent, or there is nothing to decide."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from advisor.errors import InterruptedByUserError
from advisor.executor.rounds import Round, interleaved
from advisor.gate import origins, validity
from advisor.gate.entries import ARMS, PairEntry, ProgramEntry, RunEntry
from advisor.gate.measure import WHOLE
from advisor.gate.verdict import Decided, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from advisor.gate.entries import Variant
    from advisor.gate.measure import Bench
    from advisor.gate.program import Program
    from advisor.gate.records import Inputs
    from advisor.model import MeasurePlan

MARGIN = 1.2
"""A pair may take this much longer than the longest so far and still fit the budget."""


HANGS = 3.0
"""A run that takes this many times as long as any before it hangs; a shorter one may outlast the
budget, which was not spent when its pair began."""

SHORT_RUN_S = 10.0
"""A program that ends within this is run to its end, whatever the budget."""


@dataclass(kw_only=True)
class Session:
    """The timed part of a gate. What was measured stays in `programs`, also when broken off."""

    bench: Bench
    asked: tuple[Program, ...]
    inputs: Inputs
    say: Callable[[str], None]
    why_base_fails: Callable[[str], str | None] = lambda _: None
    """The cause, and what mends it, of a failure of base that says this; None: not known."""
    fixed_pairs: int | None = None
    """Measure this many pairs that count, whatever they say."""
    may_stand_in: bool = True
    """Whether pairs disturbed alike count where the machine stays busy; not for their own rates."""
    programs: dict[str, ProgramEntry] = field(default_factory=dict)
    plans: dict[str, MeasurePlan] = field(default_factory=dict)
    deadline: float = field(default=0.0, init=False)
    """End of the budget on the monotonic clock; it begins with the first warm-up."""

    def __post_init__(self) -> None:
        for program in self.asked:
            self.programs.setdefault(
                program.name,
                ProgramEntry(
                    name=program.name, command=program.command, definition=program.definition
                ),
            )

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def decided(self) -> Decided:
        return decide(tuple(self.programs.values()), self.inputs)

    def know(self, name: str, known: list[str]) -> None:
        """Say what of a program is no newcomer, see ProgramEntry.known."""
        self._update(name, known=known)

    def close(self, name: str, *, no_baseline: str | None = None, error: str | None = None) -> None:
        """Say why a program cannot be compared; no pair of it will be run."""
        self._update(name, no_baseline=no_baseline, error=error)

    def run(self) -> None:
        """Warm up every program that is not closed, then measure pairs. Raises Interrupted."""
        self.deadline = time.monotonic() + 60 * self.inputs.max_minutes
        for program in self.asked:
            if not self._closed(program.name):
                self._warm_up(program)
        self._announce()
        rounds = {program.name: self._rounds(program) for program in self.asked}
        while open_programs := self._open():
            for program in open_programs:
                self._keep(program, next(rounds[program.name]))

    # --- before the first pair ---

    def _warm_up(self, program: Program) -> None:
        """One run of each arm that does not count: fills caches and shows how to measure.

        A program that ends by itself in a reasonable time is always run to its end, so that its
        work can be compared; of a longer one the probe measures a window.
        """
        self.say(f"{program.name}: warming up")
        plan = WHOLE
        head = self._run(program, "head", plan, self._whole_limit_s())
        if head.problem and head.problem.kind == "timeout":
            plan = self.bench.window
            self._offer_window(program.name, head.wall_s)
            head = self._run(program, "head", plan, self.left_s)
        self.plans[program.name] = plan
        runs = [head]
        limit_s = HANGS * head.wall_s
        builds = range(len(self.bench.builds["head"]))
        turns: list[tuple[Variant, int]] = [("base", 0)]
        turns += [(arm, build) for build in builds[1:] for arm in ("head", "base")]
        for arm, build in turns:
            if runs[-1].problem:
                break
            runs.append(self._run(program, arm, plan, max(self.left_s, limit_s), build))
            if arm == "base":
                self._hear_base(program.name, runs[-1])
        self._update(program.name, warm_ups=runs)

    def _hear_base(self, name: str, base: RunEntry) -> None:
        """What base has measured once is known; a failure that can be mended is told as one."""
        measured = {name if key == name else f"{name}: {key}" for key in base.rates}
        self.know(name, sorted({*self.programs[name].known, *measured}))
        if base.problem:
            failed = f"base failed ({base.problem.kind}): {base.problem.evidence}"
            self.fail_base(name, failed, base.problem.evidence)

    def fail_base(self, name: str, failed: str, said: str) -> None:
        """Close a program whose base failed in `failed` and `said` why."""
        cause = None if name in self.inputs.allow_removed else self.why_base_fails(said)
        if cause:
            self.close(name, error=f"{failed}. {cause}")
        else:
            self.close(name, no_baseline=failed)

    def _offer_window(self, name: str, seen_s: float) -> None:
        """Before anything is measured: what whole runs would need, and what is done instead."""
        needed_min = math.ceil(2 * self._runs_to_first_look() * seen_s / 60)
        self.say(
            f"{name}: not over after {seen_s:.0f} s, so that the first look at whole runs needs "
            f"--max-minutes {needed_min} or more (now {self.inputs.max_minutes:g}); a window of "
            f"{self.bench.window.measure_s:g} s is measured instead (--window TIME)"
        )

    def _runs_to_first_look(self) -> int:
        return 2 * self.inputs.looks[0] * len(self.asked)

    def _whole_limit_s(self) -> float:
        """Longest run of which enough pairs for the first look fit into half the budget."""
        return self.left_s / 2 / self._runs_to_first_look()

    def _announce(self) -> None:
        pair_s = sum(self._pair_s(p.name) for p in self.asked if not self._closed(p.name))
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
        if needed_s > self.left_s:
            spent_s = 60 * self.inputs.max_minutes - self.left_s
            self.say(
                f"that does not fit into the {self.left_s / 60:.1f} min left of --max-minutes "
                f"{self.inputs.max_minutes:g}, so no pair is begun: give --max-minutes "
                f"{math.ceil((needed_s * MARGIN + spent_s) / 60)} or more, or a shorter run"
            )

    # --- pairs ---

    def _open(self) -> list[Program]:
        """Programs of which another pair could change the verdict and still fits the budget."""
        decided = self.decided()
        last = self.fixed_pairs or self.inputs.looks[-1]
        found = []
        for program in self.asked:
            entry = self.programs[program.name]
            kept = sum(pair.discarded is None for pair in entry.pairs)
            if self._closed(program.name) or kept >= last or self._settled(entry, decided):
                continue
            pairs = self._to_next_look(kept, last)
            needed_s = self._pair_s(program.name) * max(pairs, MARGIN)
            if needed_s > self.left_s:
                self._update(program.name, stopped=self._too_short(pairs, needed_s))
                continue
            found.append(program)
        return found

    def _to_next_look(self, kept: int, last: int) -> int:
        """Pairs until the next look at which something can be decided."""
        looks = () if self.fixed_pairs else self.inputs.looks
        return next((look for look in (*looks, last) if look > kept), last) - kept

    def _too_short(self, pairs: int, needed_s: float) -> str:
        left_min = max(self.left_s, 0) / 60
        return (
            f"the budget of {self.inputs.max_minutes:g} minutes was spent: the next look takes "
            f"{pairs} more pairs, about {needed_s / 60:.1f} min, and {left_min:.1f} are left"
        )

    def _settled(self, entry: ProgramEntry, decided: Decided) -> bool:
        if not entry.pairs:
            return False
        return decided.failed(entry) if self.fixed_pairs else decided.settled(entry)

    def _rounds(self, program: Program) -> Iterator[Round[RunEntry]]:
        """Processes of both arms in turn, without end; `validity` says which rounds count."""
        name, first_look = program.name, self.inputs.looks[0]

        def run(arm: str, _: int) -> RunEntry:
            limit_s = max(self.left_s, HANGS * self._longest_s(name))
            counted = sum(pair.discarded is None for pair in self.programs[name].pairs)
            build = counted % len(self.bench.builds["head"])  # builds take turns
            return self._run(program, cast("Variant", arm), self.plans[name], limit_s, build)

        def disturbed(runs: Mapping[str, RunEntry]) -> str | None:
            entry = self.programs[name]
            return validity.why_again(runs, entry, first_look, may_stand_in=self.may_stand_in)

        return interleaved(ARMS, run, disturbed=disturbed)

    def _keep(self, program: Program, found: Round[RunEntry]) -> None:
        pair = PairEntry(
            number=found.number,
            order="base first" if found.order == ARMS else "head first",
            base=found.runs["base"],
            head=found.runs["head"],
            discarded=found.disturbed,
        )
        self._update(program.name, pairs=[*self.programs[program.name].pairs, pair])
        self.say(f"{program.name}: {self._told(pair)}")

    def _run(
        self, program: Program, arm: Variant, plan: MeasurePlan, limit_s: float, build: int = 0
    ) -> RunEntry:
        """One process, stopped after `limit_s`: a program that hangs may not outlast the budget."""
        run = self.bench.run(program, arm, plan, max(SHORT_RUN_S, limit_s), build)
        if run.problem and run.problem.kind == "interrupted":
            msg = "Interrupted: no verdict. What was measured until then is in the report."
            raise InterruptedByUserError(msg)
        return run

    def _told(self, pair: PairEntry) -> str:
        number = f"pair {pair.number} ({pair.order})"
        if pair.discarded:
            return f"{number} discarded: {pair.discarded}"
        for run in (pair.base, pair.head):
            if run.problem:
                return f"{number}: {run.arm} failed: {run.problem.kind}"
        rates = ", ".join(
            f"{key}: base {rate.value(self.inputs.statistic):.4g}, head "
            f"{pair.head.rates[key].value(self.inputs.statistic):.4g} {rate.unit}/s"
            for key, rate in list(pair.base.rates.items())[:3]
            if key in pair.head.rates
        )
        stands_in = validity.stands_in(pair)
        return f"{number}: {rates}{f' ({stands_in})' if stands_in else ''}"

    # --- state ---

    def _closed(self, name: str) -> bool:
        entry = self.programs[name]
        failed = any(run.problem for run in entry.warm_ups)
        closed = entry.no_baseline or entry.error or failed or entry.stopped
        return bool(closed or origins.why_same_code(entry))

    def _pair_s(self, name: str) -> float:
        entry = self.programs[name]
        if entry.pairs:
            return max(pair.base.wall_s + pair.head.wall_s for pair in entry.pairs)
        return sum(run.wall_s for run in entry.warm_ups[-len(ARMS) :])

    def _longest_s(self, name: str) -> float:
        entry = self.programs[name]
        paired = [run for pair in entry.pairs for run in (pair.base, pair.head)]
        return max(run.wall_s for run in [*entry.warm_ups, *paired])

    def _update(self, name: str, **facts: object) -> None:
        self.programs[name] = self.programs[name].model_copy(update=facts)
