"""Executor of requests: kept runs first, then processes.

The tuner is pure: the same results lead to the same next request. A run is written to the
history before the tuner sees it. Together that is all there is to resuming: a call that was killed
is simply made again, asks for the same trials, and has the finished ones answered from the history.
Rounds are the exception: none is answered by a run of an earlier call. Speeds are only worth
something beside each other, so each round that compares them has a key of its own. Rounds of a
quality test compare results, and may share runs with other tests of this call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
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
GUESS_LIMIT = 3.0
"""A guess is ended after so many times its expected time.

A guess is a trial that the tuner has not asked for yet, and may never ask for.
Judgement: too small drops a guess that load slowed, too large keeps the card asked for waiting."""
MOST_TIMES = 2
"""A test has at most so many times its planned rounds, contended ones included.

Judgement: more would spend the budget beside a neighbour that stays, fewer give up at a burst."""
UNTIMED = {"quality", "effects"}
"""Purposes for which a run's speed does not matter."""
EXPENSIVE = 0.05
"""Share of the budget beyond which a contended process is not run again.

What a search adopts is measured again anyway, in the rounds of a comparison.

Judgement: 20 such processes are a whole budget."""


class Listener(Protocol):
    """Receiver of every process; the progress display is one."""

    def trial_started(self, number: int, label: str) -> None:
        """A process is about to start."""

    def trial_done(self, attempt: TrialResult) -> None:
        """A result is there."""

    def round_done(
        self, counted: int, planned: int, label: str, gain: Interval | None
    ) -> None:
        """`counted` of `planned` rounds count so far, and show `gain`.

        Told before the first round and after each. A round that does not count adds nothing.
        """

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
    """Executor of requests on variants of one program, or on several `programs`."""

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
    """False once a run was contended the second time, too.

    Contended runs are then kept as they are, until one runs undisturbed."""
    cards: int = 1
    """Number of cards on which trials run at once."""
    _ahead: dict[str, _LimitedTrial] = field(default_factory=dict)
    """Trials that ran beside others before they were asked for, by key."""
    _last_id: int = 0

    def answer(
        self, request: TrialRequest | ABTest, ahead: Iterable[TrialRequest]
    ) -> TrialResult | Comparison | SkippedRun:
        """Result of `request`.

        `ahead`: what the tuner may ask next; further equal cards run it meanwhile. Raises
        InterruptedByUserError and NodeLostError; finished runs are kept.
        """
        if request.purpose != "baseline":
            self.run_cache.check_speed([run.units_per_s for run in self._baselines()])
        if isinstance(request, ABTest):
            return self.compare(request)
        if request.purpose == "baseline" and self._baselines() and self.cards == 1:
            # the second baseline runs on all cards at once, to learn if they are equal
            self._find_equal_cards(request)
        elif self.cards > 1:
            self._run_ahead([request, *ahead])
        return self.measure(request)

    def _find_equal_cards(self, request: TrialRequest) -> None:
        """Use every held card, if the original runs alike on all.

        A program that chooses its card itself, a card that differs, and too few CPUs for all
        show as a run that is not equal.
        """
        equal_cards = self.engine.equal_gpus
        if not equal_cards:
            return
        left_s = self.budget.remaining_s
        trials = [
            self._limited(request, *self._build(request), left_s)
            for _ in (None, *equal_cards)
        ]
        (first,), *others = self._run_all([[trial] for trial in trials])
        self._ahead[first.key] = first  # `measure` finds it there
        original = self._baselines()[0]
        if all(
            is_equal(original, other, uuid)
            for (other,), uuid in zip(others, equal_cards, strict=True)
        ):
            self.cards = len(trials)
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
        trials: dict[str, _LimitedTrial] = {}
        for request in requests:
            if len(trials) == self.cards or request.fresh:
                break
            trial, key = self._build(request)
            has_result = key in self._ahead or self.run_cache.find(key) is not None
            remaining_s = self.budget.remaining_s
            if (
                has_result
                or key in trials
                or request.expected_s > remaining_s - request.kept_s
            ):
                continue
            if request is not requests[0]:
                guess_s = GUESS_LIMIT * request.expected_s
                trial = replace(trial, total_limit_s=min(trial.total_limit_s, guess_s))
            trials[key] = self._limited(request, trial, key, remaining_s)
        if len(trials) > 1:  # one alone is run by `measure`
            several = list(trials.values())
            self.listener.trial_started(int(several[0].trial.id), several[0].trial.label)
            for done in itertools.chain(*self._run_all([[trial] for trial in several])):
                timed_out = (
                    isinstance(done.result, Failure) and done.result.kind == "timeout"
                )
                if done.request is requests[0] or not timed_out:
                    self._ahead[done.key] = done

    def measure(self, request: TrialRequest) -> TrialResult | SkippedRun:
        """Measure a run, again where contended; the less contended counts.

        The second one counts if it fails, unless the first ran beside no load of CPUs.
        """
        first = self.run_once(request)
        if isinstance(first, SkippedRun) or request.purpose in UNTIMED:
            return first
        if first.run is None or not contended(first.run):
            self.patient = True
            return first
        if not self.patient or first.run.wall_s > EXPENSIVE * self.budget.total_s:
            return first
        again = self.run_once(request)  # the cache serves no contended run
        if isinstance(again, SkippedRun):
            return first
        best, other = sorted((first, again), key=_by_load)
        self.patient = best.run is None or not contended(best.run)
        self.attempts[self.attempts.index(other)] = replace(other, repeated=True)
        return replace(best, remaining_s=self.budget.remaining_s)

    def compare(self, ab_test: ABTest) -> Comparison:
        """Run the rounds of a test.

        If its first variant is the original, this call's baselines go with the result as
        `outside`. Where the machine has changed its speed since, they differ from the original's
        runs in the rounds, and widen the bounds of the gain.
        """
        from_original = ab_test.before == Variant() and ab_test.purpose not in UNTIMED
        baselines = self._baselines() if from_original else []
        outside = tuple(run for run in baselines if not contended(run))
        comparison = replace(
            _RunningTest(executor=self, ab_test=ab_test).run_to_end(), outside=outside
        )
        self.comparisons.append(comparison)
        self.listener.compared(comparison)
        return comparison

    def _baselines(self) -> list[Run]:
        """This call's baseline runs outside any test."""
        attempts = (a for a in self.attempts if a.request.purpose == "baseline")
        return [a.run for a in attempts if a.run and not a.reused and not a.repeated]

    def run_once(self, request: TrialRequest) -> TrialResult | SkippedRun:
        """Run `request`, or take a kept result.

        If its node is lost and another may do, it is asked for again: the engine opens the next.
        """
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

        A round ends behind the first process that fails here; a kept failure does not end it.
        `earlier_calls`: runs of earlier calls will do. Raises NodeLostError.
        """
        prepared: list[list[TrialResult | SkippedRun | _LimitedTrial]] = []
        for requests in rounds:
            prepared.append([])
            after_s = 0.0
            for request in requests:
                one = self._answer_or_trial(
                    request, earlier_calls=earlier_calls, after_s=after_s
                )
                prepared[-1].append(one)
                after_s += request.expected_s
        trials = [
            [one for one in several if isinstance(one, _LimitedTrial)]
            for several in prepared
        ]
        answers: list[list[TrialResult | SkippedRun]] = []
        for several, ran in zip(prepared, map(iter, self._run_all(trials)), strict=True):
            answers.append([])
            for one in several:
                done = next(ran, None) if isinstance(one, _LimitedTrial) else one
                if done is None:  # behind a failure
                    break
                answers[-1].append(
                    self._concluded(done) if isinstance(done, _LimitedTrial) else done
                )
        return answers

    def _answer_or_trial(
        self, request: TrialRequest, *, earlier_calls: bool, after_s: float
    ) -> TrialResult | SkippedRun | _LimitedTrial:
        """Answer that needs no process, or the trial to run after `after_s`.

        An answer is recorded as an attempt here; a trial is announced to the listener.
        """
        trial, key = self._build(request)
        cached = (
            None if request.fresh else self.run_cache.find(key, earlier_calls=earlier_calls)
        )
        if key in self._ahead:
            return self._concluded(replace(self._ahead.pop(key), request=request))
        if cached is not None:
            unrun = self._limited(request, trial, key, self.budget.remaining_s)
            return self._add(replace(unrun, result=cached), reused=True)
        remaining_s = self.budget.remaining_s - after_s
        if request.expected_s > remaining_s:
            return SkippedRun(
                request=request, needed_s=request.expected_s, remaining_s=remaining_s
            )
        if request.purpose == "baseline":
            self.run_cache.note_earlier(key)
        self.listener.trial_started(int(trial.id), trial.label)
        return self._limited(request, trial, key, remaining_s)

    def _limited(
        self, request: TrialRequest, trial: Trial, key: str, remaining_s: float
    ) -> _LimitedTrial:
        """`trial` with the limits of its request and of the budget; uses its number up."""
        self._last_id += 1
        budget_limit_s = remaining_s - request.kept_s + LATE_S
        limit_s = min(trial.total_limit_s, budget_limit_s)
        trial = replace(trial, steps_limit_s=request.limit_s, total_limit_s=limit_s)
        return _LimitedTrial(
            request=request,
            trial=trial,
            key=key,
            budget_limit_s=budget_limit_s,
            remaining_s=remaining_s,
        )

    def _run_all(
        self, rounds: Sequence[Sequence[_LimitedTrial]]
    ) -> list[list[_LimitedTrial]]:
        """Run rounds at once, the first one on the program's own card."""
        environments = [
            (),
            *((("CUDA_VISIBLE_DEVICES", uuid),) for uuid in self.engine.equal_gpus),
        ]

        def run(
            several: Sequence[_LimitedTrial], card: tuple[tuple[str, str], ...]
        ) -> list[_LimitedTrial]:
            done: list[_LimitedTrial] = []
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
            return list(pool.map(run, rounds, environments))

    def _concluded(self, done: _LimitedTrial) -> TrialResult | SkippedRun:
        """Keep a trial's result, unless a limit of ours ended it.

        Such an end says nothing of the program: kept, it would stand as a failure of its values
        in the next call, which may have more time.
        """
        request, trial, result = done.request, done.trial, done.result
        assert result is not None
        # with the preparation: the budget may run out in it, before the command starts
        by_budget = done.took_s > done.budget_limit_s - LATE_S
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
                needed_s=max(request.expected_s, done.budget_limit_s),
                remaining_s=done.remaining_s,
                stopped=True,
            )
        self.run_cache.append(done.key, result)
        return self._add(done)

    def _add(self, done: _LimitedTrial, *, reused: bool = False) -> TrialResult:
        """Record an attempt, and tell the listener.

        A baseline's start-up time becomes the program's: its limit of the start follows from it.
        """
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
        """Trial of `request` under the next number, which `_limited` uses up, and its key."""
        id_ = f"{self._last_id + 1:03d}"
        name = request.variant.program
        program = self.program if name is None else self.programs[name]
        trial = program.trial(id_, request, self.engine.scratch(id_))
        return trial, self.run_cache.key(program, trial, request.series)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitedTrial:
    """Trial with the limits that it would run under, and its result once there is one."""

    request: TrialRequest
    trial: Trial
    key: str
    budget_limit_s: float
    """Longest time that the budget leaves it."""
    remaining_s: float
    result: Run | Failure | None = None
    took_s: float = 0.0


class _SpentError(Exception):
    """A process did not fit the budget, or a limit of ours ended it.

    The comparison ends with the rounds that it has."""


@dataclass(kw_only=True)
class _RunningTest:
    """Test while its rounds run."""

    executor: Executor
    ab_test: ABTest
    rounds: list[Round] = field(default_factory=list)
    next_process_s: dict[str, float] = field(default_factory=dict)
    """Expected time of each arm's next process.

    What its last one of the same plan took, and at most what was planned."""
    cut_short: bool = False

    def run_to_end(self) -> Comparison:
        """Rounds until enough, decided, failed, or no budget."""
        test = self.ab_test
        self.next_process_s = {
            arm: request.expected_s for arm, request in test.by_name.items()
        }
        repeats = max(2, test.rounds // 2) if self.executor.patient else 0

        def why_repeat(runs: Mapping[str, TrialResult]) -> str | None:
            """Reason to repeat a round, or None.

            Once `repeats` rounds did not count, one whose arms had about the same load does.
            """
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
                why_repeat=why_repeat,
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
        """Run rounds at once, on a card each; each ends with its first failure.

        A single round asks for one process after another, so each is announced as it starts, and
        held against what the budget has left then. Of several rounds all are prepared first.
        """
        if len(rounds) > 1:
            requests = [[self._request(*turn) for turn in turns] for turns in rounds]
            answers = self.executor.run_rounds(requests)
            return [
                {
                    arm: self._accepted(arm, a)
                    for (arm, _), a in zip(turns, got, strict=False)
                }
                for turns, got in zip(rounds, answers, strict=True)
            ]
        results: dict[str, TrialResult] = {}
        for arm, number in rounds[0]:
            request = self._request(arm, number)
            results[arm] = self._accepted(arm, self.executor.run_rounds([[request]])[0][0])
            if results[arm].run is None:
                break
        return [results]

    def _accepted(self, arm: str, answer: TrialResult | SkippedRun) -> TrialResult:
        """Result, which tells what its arm's next process takes. Raises _SpentError."""
        if isinstance(answer, SkippedRun):
            raise _SpentError
        asked = self.ab_test.by_name[arm]
        if answer.request.plan == asked.plan and not answer.reused:
            self.next_process_s[arm] = min(asked.expected_s, answer.took_s)
        return answer

    def _request(self, arm: str, number: int) -> TrialRequest:
        test, request = self.ab_test, self.ab_test.by_name[arm]
        request = replace(request, expected_s=self.next_process_s[arm])
        if test.purpose == "quality":
            # round n has the n-th seed, so two tests of one variant can share their runs
            return replace(request, repeat=(request.repeat or 0) + number - 1)
        series = f"comparison {len(self.executor.comparisons) + 1}, round {number}"
        request = replace(request, series=series)
        if test.finish_once and arm == test.names[-1] and not self.rounds:
            return replace(request, plan=replace(request.plan, whole_batches=1))
        return request

    def _missing(self) -> int:
        """Rounds still to run: until enough count, at most MOST_TIMES as many in all.

        A round that `why_repeat` let pass because all its arms had about the same load counts
        here. `Comparison.contended` still names the arms of such a round.
        """
        quiet = [r for r in self.rounds if r.contended is None]
        wanted = self._wanted(quiet)
        return max(0, min(wanted - len(quiet), MOST_TIMES * wanted - len(self.rounds)))

    def _wanted(self, quiet: Sequence[Round]) -> int:
        """Rounds to be had; a confirmation may add some.

        It spends what the budget leaves, up to the test's `max_rounds`, since more rounds narrow
        the bounds. If runs collapsed, it buys the rounds that outlive them where these fit, also
        beyond `max_rounds`: else one stray run decides a test of six rounds. Of the rates only
        the worse arm's number of collapses is used, so the bounds hold (`rounds_wanted`).
        """
        test = self.ab_test
        if test.purpose != "confirm":
            return test.rounds
        rates = {arm: [r.units_per_s for r in runs_of(quiet, arm)] for arm in test.names}
        left_s = self.executor.budget.remaining_s
        fit = len(quiet) + int(left_s / max(sum(self.next_process_s.values()), 1e-9))
        outlive = rounds_wanted(test.rounds, rates)
        enough = outlive if outlive <= fit else test.rounds
        return max(enough, min(test.max_rounds, fit))


def is_equal(original: Run, other: _LimitedTrial, uuid: str) -> bool:
    """True if the original ran on `uuid` as fast as on its own card, and under an overlay.

    Only under an overlay may two trials run at once: else both would write the same files. A
    program that names its card itself runs on one card both times, which shows here.
    """
    run = other.result
    if not isinstance(run, Run):
        return False
    if not len(original.cards) == len(run.cards) == run.ranks == 1:
        return False
    apart = same_uuid(run.cards[0].uuid, uuid) and not same_uuid(
        original.cards[0].uuid, uuid
    )
    same_speed = abs(run.units_per_s / original.units_per_s - 1) <= MOVED
    return apart and same_speed and run.isolation == "overlay"


def _by_load(attempt: TrialResult) -> tuple[bool, float]:
    """Sort key: undisturbed runs first, then by the CPUs that others kept busy.

    A failure stands like a contended run beside which others kept no CPU busy.
    """
    run = attempt.run
    return (contended(run), run.disturbance.others_cpus or 0.0) if run else (True, 0.0)
