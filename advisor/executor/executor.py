"""Executor of requests: kept runs first, then processes.

The tuner is pure: the same results lead to the same next request. A run is written to the
history before the tuner sees it. Together that is all there is to resuming: a call that was killed
is simply made again, asks for the same trials, and has the finished ones answered from the history.
Rounds of a comparison are the exception. Their speeds are only worth something beside each other,
so each has a key of its own series, and one from an earlier call is never taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from advisor.errors import InterruptedByUserError, NodeLostError
from advisor.executor.background_load import alike, contended_arms, is_watched
from advisor.executor.comparison import Comparison
from advisor.executor.engines import Engine
from advisor.executor.requests import (
    ABTest,
    Program,
    SkippedRun,
    TrialRequest,
    TrialResult,
    Variant,
    contended,
)
from advisor.executor.rounds import Round, Turns, interleaved, rounds_wanted, runs_of
from advisor.executor.run_cache import MOVED, RunCache
from advisor.machine.recording import same_uuid
from advisor.model import Failure, Interval, Run, Trial
from advisor.objective import THROUGHPUT

LATE_S = 2.0
"""Seconds that a process may take beyond the budget: it may be about to end.

Record: benchmarks/results/reach-cpu2.md: with four, one of 30 calls came later than the 5 s after
its budget that `benchmarks.reach` allows."""
LATE_GUESS = 3.0
"""A trial run ahead ends after so many times its expected time: nobody asked for it yet.

Judgement: too small drops a guess that load slowed, too large keeps the card asked for waiting."""
MOST_TIMES = 2
"""A test has at most so many times its planned rounds, contended ones included.

Judgement: more would spend the budget beside a neighbour that stays, fewer give up at a burst."""
UNTIMED = {"quality", "effects"}
"""Purposes for which a run's speed does not matter."""
EXPENSIVE = 0.05
"""Share of the budget beyond which a contended process is not repeated: its rounds will be.

Judgement: 20 such processes are a whole budget."""


class Listener(Protocol):
    """Receiver of every process; the progress display is one."""

    def trial_started(self, number: int, label: str) -> None:
        """A process is about to start."""

    def trial_done(self, attempt: TrialResult) -> None:
        """A result is there."""

    def round_done(
        self, number: int, planned: int, label: str, gain: Interval | None
    ) -> None:
        """A round of a comparison ended (0: it begins), with the gain so far."""

    def compared(self, done: Comparison) -> None:
        """The rounds of a comparison are over."""

    def note(self, text: str) -> None:
        """A line for the user."""


@dataclass(kw_only=True)
class Budget:
    """Wall clock to spend, by the engine's clock."""

    total_s: float
    clock: Callable[[], float]
    started: float

    @property
    def remaining_s(self) -> float:
        return self.total_s - (self.clock() - self.started)


@dataclass(kw_only=True)
class Executor:
    """Executor of variants of one program."""

    engine: Engine
    program: Program
    programs: Mapping[str, Program] = field(default_factory=dict)
    """Programs of variants that are no changes of `program`, by name."""
    run_cache: RunCache
    budget: Budget
    listener: Listener
    attempts: list[TrialResult] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    patient: bool = True
    """Run a contended run again; if in vain, not until one is uncontended."""
    cards: int = 1
    _ahead: dict[str, _Begun] = field(default_factory=dict)
    """Trials that ran beside others before asked for, by key."""
    _last_id: int = 0

    def answer(
        self, request: TrialRequest | ABTest, ahead: Iterable[TrialRequest]
    ) -> TrialResult | Comparison | SkippedRun:
        """Result of `request`. Raises InterruptedByUserError; finished runs are kept."""
        if request.purpose != "baseline":
            self.run_cache.check_speed([run.units_per_s for run in self._baselines()])
        if isinstance(request, ABTest):
            return self.compare(request)
        if request.purpose == "baseline" and self._baselines() and self.cards == 1:
            self._find_equal_cards(request)
        elif self.cards > 1:
            self._run_ahead([request, *ahead])
        return self.measure(request)

    def _find_equal_cards(self, request: TrialRequest) -> None:
        """Use every held card, if the original runs alike on all.

        This shows programs that choose their card, unequal cards, and too few CPUs.
        """
        equal_cards = self.engine.equal_gpus
        if not equal_cards:
            return
        left_s = self.budget.remaining_s
        begun = [
            self._begin(request, *self._build(request), left_s)
            for _ in (None, *equal_cards)
        ]
        (first,), *others = self._run_all([[trial] for trial in begun])
        self._ahead[first.key] = first
        if all(
            map(
                partial(is_equal, self._baselines()[0]),
                itertools.chain(*others),
                equal_cards,
            )
        ):
            self.cards = len(begun)
            self.listener.note(
                f"{self.cards} equal cards: trials run on all of them at once"
            )
        else:
            self.listener.note(
                "one trial at a time: the original ran differently on other cards"
            )

    def _run_ahead(self, requests: Sequence[TrialRequest]) -> None:
        """Run the first requests without a result, one a card.

        The first is asked for; the others are guesses of what the tuner asks next. A guess has
        a time limit and is dropped if it passes it, since nobody may ever ask for it.
        """
        begun: dict[str, _Begun] = {}
        for request in requests:
            if len(begun) == self.cards or request.fresh:
                break
            trial, key = self._build(request)
            has_result = key in self._ahead or self.run_cache.find(key) is not None
            remaining_s = self.budget.remaining_s
            if (
                has_result
                or key in begun
                or request.expected_s > remaining_s - request.kept_s
            ):
                continue
            if request is not requests[0]:
                most_s = LATE_GUESS * request.expected_s
                trial = replace(trial, total_limit_s=min(trial.total_limit_s, most_s))
            begun[key] = self._begin(request, trial, key, remaining_s)
        if len(begun) > 1:
            several = list(begun.values())
            self.listener.trial_started(int(several[0].trial.id), several[0].trial.label)
            for done in itertools.chain(*self._run_all([[trial] for trial in several])):
                late = isinstance(done.result, Failure) and done.result.kind == "timeout"
                if done.request is requests[0] or not late:
                    self._ahead[done.key] = done

    def measure(self, request: TrialRequest) -> TrialResult | SkippedRun:
        """Measure a run, again where contended; the less contended counts."""
        first = self.run_once(request)
        if isinstance(first, SkippedRun) or not self._is_to_repeat(first):
            return first
        again = self.run_once(request)
        if isinstance(again, SkippedRun):
            return first
        best, other = sorted((first, again), key=_background_load)
        self.patient = best.run is None or not contended(best.run)
        self.attempts[self.attempts.index(other)] = replace(other, repeated=True)
        return replace(best, remaining_s=self.budget.remaining_s)

    def _is_to_repeat(self, answer: TrialResult) -> bool:
        """True for a contended run, unless in vain or too long."""
        if answer.request.purpose in UNTIMED:
            return False
        if answer.run is None or not contended(answer.run):
            self.patient = True
            return False
        return self.patient and answer.run.wall_s <= EXPENSIVE * self.budget.total_s

    def compare(self, ab_test: ABTest) -> Comparison:
        """Run the rounds of a test, which baselines of this call stand beside.

        They are runs of the original from before the rounds. Where the machine has changed its
        speed since, they differ from its runs in the rounds, and widen the bounds of the gain.
        """
        from_original = ab_test.before == Variant() and ab_test.purpose not in UNTIMED
        baselines = self._baselines() if from_original else []
        outside = tuple(run for run in baselines if not contended(run))
        comparison = replace(_Rounds(executor=self, ab_test=ab_test).all(), outside=outside)
        self.comparisons.append(comparison)
        self.listener.compared(comparison)
        return comparison

    def _baselines(self) -> list[Run]:
        """This call's baseline runs outside any test."""
        attempts = (a for a in self.attempts if a.request.purpose == "baseline")
        return [a.run for a in attempts if a.run and not a.reused and not a.repeated]

    def run_once(self, request: TrialRequest) -> TrialResult | SkippedRun:
        """Run `request`, or take a kept result; a lost node is replaced."""
        while True:
            try:
                return self.run_rounds([[request]], earlier_calls=True)[0][0]
            except NodeLostError as lost:
                if not lost.again:
                    raise

    def run_rounds(
        self, rounds: Sequence[Sequence[TrialRequest]], *, earlier_calls: bool = False
    ) -> list[list[TrialResult | SkippedRun]]:
        """Run rounds at once, a card each, and their requests in turn.

        A round ends with its first failure. Raises NodeLostError.
        """
        prepared: list[list[TrialResult | SkippedRun | _Begun]] = []
        for requests in rounds:
            prepared.append([])
            after_s = 0.0
            for request in requests:
                one = self._prepared(request, earlier_calls=earlier_calls, after_s=after_s)
                prepared[-1].append(one)
                after_s += request.expected_s
        begun = [
            [one for one in several if isinstance(one, _Begun)] for several in prepared
        ]
        answers: list[list[TrialResult | SkippedRun]] = []
        for several, ran in zip(prepared, map(iter, self._run_all(begun)), strict=True):
            answers.append([])
            for one in several:
                done = next(ran, None) if isinstance(one, _Begun) else one
                if done is None:  # behind a failure
                    break
                answers[-1].append(
                    self._concluded(done) if isinstance(done, _Begun) else done
                )
        return answers

    def _prepared(
        self, request: TrialRequest, *, earlier_calls: bool, after_s: float
    ) -> TrialResult | SkippedRun | _Begun:
        """Answer that needs no process, or the trial to run after `after_s`."""
        trial, key = self._build(request)
        kept_result = (
            None if request.fresh else self.run_cache.find(key, earlier_calls=earlier_calls)
        )
        if key in self._ahead:
            return self._concluded(replace(self._ahead.pop(key), request=request))
        if kept_result is not None:
            kept = self._begin(request, trial, key, self.budget.remaining_s)
            return self._add(replace(kept, result=kept_result), reused=True)
        remaining_s = self.budget.remaining_s - after_s
        if request.expected_s > remaining_s:
            return SkippedRun(
                request=request, needed_s=request.expected_s, remaining_s=remaining_s
            )
        if request.purpose == "baseline":
            self.run_cache.note_earlier(key)
        self.listener.trial_started(int(trial.id), trial.label)
        return self._begin(request, trial, key, remaining_s)

    def _begin(
        self, request: TrialRequest, trial: Trial, key: str, remaining_s: float
    ) -> _Begun:
        self._last_id += 1
        most_s = remaining_s - request.kept_s + LATE_S
        limit_s = min(trial.total_limit_s, most_s)
        trial = replace(trial, steps_limit_s=request.limit_s, total_limit_s=limit_s)
        return _Begun(
            request=request, trial=trial, key=key, most_s=most_s, remaining_s=remaining_s
        )

    def _run_all(self, rounds: Sequence[Sequence[_Begun]]) -> list[list[_Begun]]:
        """Run rounds at once, the first one on the program's own card."""
        cards = [
            (),
            *((("CUDA_VISIBLE_DEVICES", uuid),) for uuid in self.engine.equal_gpus),
        ]

        def run(
            several: Sequence[_Begun], card: tuple[tuple[str, str], ...]
        ) -> list[_Begun]:
            done: list[_Begun] = []
            for one in several:
                started = self.engine.clock()
                trial = replace(one.trial, env=(*one.trial.env, *card))
                result = self.engine.run(trial)
                done.append(
                    replace(one, result=result, took_s=self.engine.clock() - started)
                )
                if isinstance(result, Failure):
                    break
            return done

        if len(rounds) < 2:
            return [run(trials, ()) for trials in rounds]
        with ThreadPoolExecutor(len(rounds)) as pool:
            return list(pool.map(run, rounds, cards))

    def _concluded(self, done: _Begun) -> TrialResult | SkippedRun:
        """Keep a trial's result, unless a limit of ours ended it.

        Such an end says nothing of the program: kept, it would stand as a failure of its values
        in the next call, which may have more time.
        """
        request, trial, result = done.request, done.trial, done.result
        assert result is not None
        # the whole time, since a limit may pass before the command has begun
        by_budget = done.took_s > done.most_s - LATE_S
        if isinstance(result, Failure) and result.kind == "interrupted":
            msg = "Interrupted; nothing was changed, and what was measured is kept."
            raise InterruptedByUserError(msg)
        ours = by_budget or request.limit_s is not None
        if isinstance(result, Failure) and result.kind == "timeout" and ours:
            reason = "the budget is spent"
            if not by_budget:
                reason = f"no item within {max(0.0, request.limit_s or 0.0):.0f} s"
            elif request.kept_s:
                reason = f"after {done.took_s:.0f} s: the rest is kept for the proof"
            self.listener.note(f"{trial.label}: stopped by gpu-advisor, {reason}")
            return SkippedRun(
                request=request,
                needed_s=max(request.expected_s, done.most_s),
                remaining_s=done.remaining_s,
                stopped=True,
            )
        self.run_cache.append(done.key, result)
        return self._add(done)

    def _add(self, done: _Begun, *, reused: bool = False) -> TrialResult:
        assert done.result is not None
        attempt = TrialResult(
            id=done.trial.id,
            request=done.request,
            result=done.result,
            reused=reused,
            took_s=done.took_s,
            remaining_s=self.budget.remaining_s,
        )
        self.attempts.append(attempt)
        if done.request.purpose == "baseline" and attempt.run is not None:
            limits = replace(self.program.limits, startup_s=attempt.run.startup_s)
            self.program = replace(self.program, limits=limits)
        self.listener.trial_done(attempt)
        return attempt

    def _build(self, request: TrialRequest) -> tuple[Trial, str]:
        id_ = f"{self._last_id + 1:03d}"
        name = request.variant.program
        program = self.program if name is None else self.programs[name]
        trial = program.trial(id_, request, self.engine.scratch(id_))
        return trial, self.run_cache.key(program, trial, request.series)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """Trial with its limits, and its result once it ran."""

    request: TrialRequest
    trial: Trial
    key: str
    most_s: float
    """Longest time that the budget leaves it."""
    remaining_s: float
    result: Run | Failure | None = None
    took_s: float = 0.0


class _SpentError(Exception):
    """The next process would exceed the budget: the comparison ends with the rounds it has."""


@dataclass(kw_only=True)
class _Rounds:
    """Test while its rounds run."""

    executor: Executor
    ab_test: ABTest
    rounds: list[Round] = field(default_factory=list)
    took_s: dict[str, float] = field(default_factory=dict)
    """Time of one more process of each variant."""
    cut_short: bool = False

    def all(self) -> Comparison:
        """Rounds until enough, or no budget."""
        test = self.ab_test
        self.took_s = {arm: request.expected_s for arm, request in test.by_name.items()}
        repeats = max(2, test.rounds // 2) if self.executor.patient else 0

        def reason(runs: Mapping[str, TrialResult]) -> str | None:
            """Reason to repeat a round; none once enough were repeated."""
            every = (runs, *(round_.runs for round_ in self.rounds))
            disturbed = contended_arms(runs, watched=any(map(is_watched, every)))
            disturbed = None if test.purpose == "quality" else disturbed
            spent = sum(r.contended is not None for r in self.rounds) >= repeats
            return None if spent and alike(runs) else disturbed

        self._tell()
        try:
            for round_ in interleaved(
                test.names,
                self._run,
                contended=reason,
                failed=lambda a: a.run is None,
                at_once=lambda: min(self.executor.cards, self._missing()),
            ):
                self.rounds.append(round_)
                self._tell()
                if round_.failed or not self._missing() or self._decided():
                    break
        except _SpentError:
            self.cut_short = True
        return self._comparison()

    def _decided(self) -> bool:
        decided = self.ab_test.decided
        return decided is not None and decided(self._comparison())

    def _tell(self) -> None:
        """Tell the listener how far the comparison is."""
        comparison, test = self._comparison(), self.ab_test
        last = test.names[-1]
        gain = None if test.purpose == "quality" else comparison.interval(THROUGHPUT, last)
        counted = len(comparison.counted)
        self.executor.listener.round_done(
            counted, test.rounds, test.after.label, gain if counted > 1 else None
        )

    def _comparison(self) -> Comparison:
        """The comparison of the rounds so far."""
        results = [attempt.result for r in self.rounds for attempt in r.runs.values()]
        return Comparison(
            ab_test=self.ab_test,
            rounds=tuple(self.rounds),
            failure=next(
                (result for result in results if isinstance(result, Failure)), None
            ),
            cut_short=self.cut_short,
            remaining_s=self.executor.budget.remaining_s,
        )

    def _run(self, rounds: Sequence[Turns]) -> list[dict[str, TrialResult]]:
        """Run rounds at once, on a card each; a single one stops at a failure."""
        if len(rounds) > 1:
            requests = [[self._request(*turn) for turn in turns] for turns in rounds]
            answers = self.executor.run_rounds(requests)
            return [
                {arm: self._taken(arm, a) for (arm, _), a in zip(turns, got, strict=False)}
                for turns, got in zip(rounds, answers, strict=True)
            ]
        results: dict[str, TrialResult] = {}
        for arm, number in rounds[0]:
            request = self._request(arm, number)
            results[arm] = self._taken(arm, self.executor.run_rounds([[request]])[0][0])
            if results[arm].run is None:
                break
        return [results]

    def _taken(self, arm: str, answer: TrialResult | SkippedRun) -> TrialResult:
        """Result, which tells what its arm's next process takes."""
        if isinstance(answer, SkippedRun):
            raise _SpentError
        asked = self.ab_test.by_name[arm]
        if answer.request.plan == asked.plan and not answer.reused:
            self.took_s[arm] = min(asked.expected_s, answer.took_s)
        return answer

    def _request(self, arm: str, number: int) -> TrialRequest:
        test, request = self.ab_test, self.ab_test.by_name[arm]
        request = replace(request, expected_s=self.took_s[arm])
        if test.purpose == "quality":  # each round has a seed; tests share their runs
            return replace(request, repeat=(request.repeat or 0) + number - 1)
        series = f"comparison {len(self.executor.comparisons) + 1}, round {number}"
        request = replace(request, series=series)
        if test.finish_once and arm == test.names[-1] and not self.rounds:
            return replace(request, plan=replace(request.plan, whole_batches=1))
        return request

    def _missing(self) -> int:
        quiet = [r for r in self.rounds if r.contended is None]
        wanted = self._wanted(quiet)
        return max(0, min(wanted - len(quiet), MOST_TIMES * wanted - len(self.rounds)))

    def _wanted(self, quiet: Sequence[Round]) -> int:
        """Rounds to be had; a confirmation may add some.

        It spends what the budget leaves, up to the test's `max_rounds`, since more rounds narrow
        the bounds. If runs collapsed, it first buys the rounds that outlive them: else one stray
        run decides a test of six rounds.
        """
        test = self.ab_test
        if test.purpose != "confirm":
            return test.rounds
        rates = {arm: [r.units_per_s for r in runs_of(quiet, arm)] for arm in test.names}
        left_s = self.executor.budget.remaining_s
        fit = len(quiet) + int(left_s / max(sum(self.took_s.values()), 1e-9))
        outlive = rounds_wanted(test.rounds, rates)
        enough = outlive if outlive <= fit else test.rounds
        return max(enough, min(test.max_rounds, fit))


def is_equal(original: Run, other: _Begun, uuid: str) -> bool:
    """True if the original ran alike on `uuid`, and left no file.

    Only under an overlay may two trials run at once: else both would write the same files. A
    program that names its card itself runs on one card both times, which shows here.
    """
    run = other.result
    if not isinstance(run, Run) or [len(original.cards), len(run.cards), run.ranks] != [
        1,
        1,
        1,
    ]:
        return False
    apart = same_uuid(run.cards[0].uuid, uuid) and not same_uuid(
        original.cards[0].uuid, uuid
    )
    alike = abs(run.units_per_s / original.units_per_s - 1) <= MOVED
    return apart and alike and run.isolation == "overlay"


def _background_load(attempt: TrialResult) -> tuple[bool, float]:
    run = attempt.run
    return (contended(run), run.disturbance.others_cpus or 0.0) if run else (True, 0.0)
