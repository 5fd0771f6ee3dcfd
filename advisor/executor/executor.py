"""Asks into answers: history first, then processes, inside a budget, again where disturbed.

The strategy above never sees a process, a file or a clock; it hears what came of what it asked
for, and how much of the budget was left then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from advisor.errors import InterruptedByUserError
from advisor.executor.comparison import (
    AFTER,
    BEFORE,
    Comparison,
    alike,
    rounds_wanted,
    why_disturbed,
)
from advisor.executor.requests import ABTest, SkippedRun, TrialRequest, TrialResult, disturbed
from advisor.executor.rounds import Round, interleaved
from advisor.executor.startup_budget import StartupBudget
from advisor.model import Failure, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from advisor import config as documents
    from advisor.executor.engines import Engine
    from advisor.executor.program import Program
    from advisor.executor.requests import CommandName
    from advisor.executor.run_cache import RunCache
    from advisor.model import Neighbour, Trial

WAIT_SHARE = 0.1
"""Part of the budget that may be spent waiting for others to end what they do."""
WAIT_S = 10.0
"""Longest wait for others before one process; the engine waits less where that is in vain."""
LATE_S = 2.0
"""A process that the budget ended amid is stopped so much later: it may be about to end, and with
the report the whole call is five seconds over at most, where the program heeds that it is ended."""
MOST_TIMES = 2
"""A contest has at most so many times the rounds it was planned with."""
UNTIMED = {"quality", "effects"}
"""Purposes that ask what a program does, not how fast."""
REPEATS = 2
"""A disturbed run is run again at most so often before it is believed as it is."""
DEAR = 0.05
"""A process that takes more of the budget is not repeated by itself: its rounds will be."""
MOVED = 0.1
"""History is set aside where the original moved by more than this share."""


class Listener(Protocol):
    """Hears of every process; the progress display is one."""

    def trial_started(self, number: int, label: str, purpose: str) -> None:
        """A process is about to start."""

    def trial_done(self, attempt: TrialResult) -> None:
        """A result is there."""


@dataclass(kw_only=True)
class Budget:
    """Wall clock to be spent, by the clock of the engine."""

    total_s: float
    clock: Callable[[], float]
    started: float

    @property
    def spent_s(self) -> float:
        return self.clock() - self.started

    @property
    def remaining_s(self) -> float:
        return self.total_s - self.spent_s


@dataclass(kw_only=True)
class Executor:
    """Measures candidates of one program on one engine; keeps everything it did."""

    engine: Engine
    program: Program
    commands: Mapping[CommandName, documents.Document]
    """What was declared for the quality measures; the user's own command stands in the program."""
    recall: RunCache
    budget: Budget
    listener: Listener
    attempts: list[TrialResult] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    patient: bool = True
    """Whether it is worth running a disturbed run again: not after that was in vain, until a quiet
    one is seen."""
    crowd: tuple[Neighbour, ...] = ()
    """Who was at work when a process had to begin beside others; empty while nobody was."""
    earlier: list[Run] = field(default_factory=list)
    """What earlier calls measured of the original, as this one measured it anew."""

    @property
    def processes(self) -> int:
        """Processes this call really started."""
        return sum(not attempt.reused for attempt in self.attempts)

    @property
    def starts(self) -> StartupBudget:
        """What start-up took so far, and may take."""
        ran = [a for a in self.attempts if not a.reused]
        first = [a.run.startup_s or 0.0 for a in ran if a.run and a.request.purpose == "baseline"]
        usual_s = min(first, default=0.0)
        spent_s = sum((a.run.startup_s or 0.0) if a.run else usual_s for a in ran)
        return StartupBudget(budget_s=self.budget.total_s, usual_s=usual_s, spent_s=spent_s)

    def answer(self, request: TrialRequest | ABTest) -> TrialResult | Comparison | SkippedRun:
        """Run what was asked for. Raises InterruptedByUserError; what was measured is kept."""
        if request.purpose != "baseline":
            self._doubt_history()
        if isinstance(request, ABTest):
            return self.compare(request)
        return self.measure(request)

    def measure(self, request: TrialRequest) -> TrialResult | SkippedRun:
        """One run of `request`, repeated while contended; the least contended one counts."""
        tries: list[TrialResult] = []
        while True:
            answer = self._once(request)
            if isinstance(answer, SkippedRun):
                break
            tries.append(answer)
            if request.purpose in UNTIMED or answer.run is None or not disturbed(answer.run):
                self.patient = True
                break
            if not self.patient or len(tries) > REPEATS:
                self.patient = False
                break
            if answer.run.wall_s > DEAR * self.budget.total_s:
                break
        if not tries:
            return answer
        best = min(tries, key=_held_by_others)
        for attempt in tries:
            if attempt is not best:
                self._replace(attempt, replace(attempt, repeated=True))
        return replace(best, remaining_s=self.budget.remaining_s)

    def compare(self, ab_test: ABTest) -> Comparison:
        """Interleaved rounds of two arms; a disturbed round is run again whole, within a bound, and
        a proof in which runs collapsed goes on while the budget bears it."""
        arms = {BEFORE: ab_test.before, AFTER: ab_test.after}
        took_s = {arm: request.expected_s for arm, request in arms.items()}
        rounds: list[Round[TrialResult]] = []
        again = max(2, ab_test.rounds // 2) if self.patient else 0
        cut_short = False

        def run(arm: str, number: int) -> TrialResult:
            request = arms[arm]
            if ab_test.reseeded:  # known by its seed: contests share their runs
                request = replace(request, repeat=(request.repeat or 0) + number - 1)
            else:
                request = replace(request, series=f"{ab_test.title}, round {number}")
            finishes = ab_test.finish_once and arm == AFTER and number == 1
            if finishes:
                request = replace(request, plan=replace(request.plan, whole_batches=1))
            before_s = self.budget.remaining_s
            answer = self._once(replace(request, expected_s=took_s[arm]))
            if isinstance(answer, SkippedRun):
                raise _SpentError
            if not finishes and not answer.reused:
                took_s[arm] = min(arms[arm].expected_s, before_s - answer.remaining_s)
            return answer

        def why_again(runs: Mapping[str, TrialResult]) -> str | None:
            """Others may make a result late, never worse; and what stays busy must do."""
            why = None if ab_test.purpose == "quality" else why_disturbed(runs)
            spent = sum(r.disturbed is not None for r in rounds) >= again
            return None if spent and alike(runs) else why

        def wanted(quiet: list[Round[TrialResult]]) -> int:
            """What only advises is not worth more rounds than it was planned with."""
            if ab_test.purpose != "confirm":
                return ab_test.rounds
            rates = {
                arm: [run.units_per_s for r in quiet if (run := r.runs[arm].run) is not None]
                for arm in arms
            }
            fit = len(quiet) + int(self.budget.remaining_s / max(sum(took_s.values()), 1e-9))
            outlive = rounds_wanted(ab_test.rounds, rates)
            most = outlive if outlive <= fit else ab_test.rounds
            return max(most, min(ab_test.max_rounds, fit))

        def found() -> Comparison:
            broken = next((r for r in rounds if r.broken), None)
            failures = [a.result for a in broken.runs.values() if a.run is None] if broken else []
            return Comparison(
                ab_test=ab_test,
                rounds=tuple(rounds),
                failure=failures[0] if failures and isinstance(failures[0], Failure) else None,
                cut_short=cut_short,
                remaining_s=self.budget.remaining_s,
            )

        try:
            for each in interleaved(
                (BEFORE, AFTER),
                run,
                disturbed=why_again,
                broken=lambda attempt: attempt.run is None,
            ):
                rounds.append(each)
                quiet = [r for r in rounds if r.disturbed is None]
                enough = len(quiet) if found().is_futile else wanted(quiet)
                if each.broken or len(quiet) >= enough or len(rounds) >= MOST_TIMES * enough:
                    break
        except _SpentError:
            cut_short = True
        self.comparisons.append(found())
        return self.comparisons[-1]

    def _doubt_history(self) -> None:
        """Earlier calls are not believed where the original now runs at another speed."""
        now = [
            a.run.units_per_s for a in self.attempts if a.request.purpose == "baseline" and a.run
        ]
        if self.earlier and now:
            before = max(run.units_per_s for run in self.earlier)
            if abs(max(now) / before - 1) > MOVED:
                self.recall.trusted, self.recall.set_aside = False, True
        self.earlier.clear()

    def _once(self, request: TrialRequest) -> TrialResult | SkippedRun:
        trial, key = self._build(request)
        known = None if request.fresh else self.recall.find(key)
        if known is not None:
            return self._tell(trial.id, request, known, reused=True)
        expected_s, remaining_s = request.expected_s, self.budget.remaining_s
        if expected_s > remaining_s:
            return SkippedRun(request=request, needed_s=expected_s, remaining_s=remaining_s)
        if expected_s and self.starts.left < 1:
            return SkippedRun(request=request, needed_s=expected_s, remaining_s=0.0)
        if request.purpose == "baseline" and isinstance(old := self.recall.find(key), Run):
            self.earlier.append(old)
        self.crowd = self.engine.wait_until_quiet(WAIT_S) or self.crowd
        remaining_s = self.budget.remaining_s  # waiting took its part
        most_s = remaining_s + LATE_S
        if expected_s > most_s:
            return SkippedRun(request=request, needed_s=expected_s, remaining_s=remaining_s)
        trial = replace(trial, steps_limit_s=request.limit_s)
        by_budget = most_s < trial.total_limit_s or request.limit_s is not None
        self.listener.trial_started(len(self.attempts) + 1, trial.label, trial.purpose)
        result = self.engine.run(replace(trial, total_limit_s=min(trial.total_limit_s, most_s)))
        if isinstance(result, Failure) and result.kind == "interrupted":
            msg = "Interrupted; nothing was changed, and what was measured is kept."
            raise InterruptedByUserError(msg)
        self.recall.append(key, result)
        attempt = self._tell(trial.id, request, result)
        if isinstance(result, Failure) and result.kind == "timeout" and by_budget:
            return SkippedRun(
                request=request, needed_s=max(expected_s, most_s), remaining_s=remaining_s
            )
        return attempt

    def _tell(
        self, id_: str, request: TrialRequest, result: Run | Failure, *, reused: bool = False
    ) -> TrialResult:
        attempt = TrialResult(
            id=id_,
            request=request,
            result=result,
            reused=reused,
            remaining_s=self.budget.remaining_s,
        )
        self.attempts.append(attempt)
        if request.purpose == "baseline" and isinstance(result, Run):
            limits = self.program.limits.following(result.startup_s)
            self.program = replace(self.program, limits=limits)
        self.listener.trial_done(attempt)
        return attempt

    def _replace(self, old: TrialResult, new: TrialResult) -> None:
        self.attempts[self.attempts.index(old)] = new

    def _build(self, request: TrialRequest) -> tuple[Trial, str]:
        id_ = f"{len(self.attempts) + 1:03d}"
        command = self.commands.get(request.command)
        trial = self.program.trial(id_, request, self.engine.scratch(id_), command)
        return trial, self.recall.key(self.program, trial, request.series)


class _SpentError(Exception):
    """The next process of a comparison does not fit into the budget any more."""


def _held_by_others(attempt: TrialResult) -> tuple[bool, float]:
    run = attempt.run
    if run is None:
        return (True, 0.0)
    return (disturbed(run), run.disturbance.others_cpus or 0.0)
