"""Comparison of variants by their rounds: what a gain rests on, and its bounds.

Load only slows: a candidate that was slowed and still won gains at least that much. So where quiet
rounds are too few, the lower bound also takes rounds in which the candidate may have been slowed.
The upper bound does not.
"""

import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from advisor import numbers, stats
from advisor.executor.background_load import alike, contended_arms, is_watched, neighbours
from advisor.executor.requests import AFTER, ABTest, TrialResult
from advisor.executor.rounds import Round, Rounds, collapsed, runs_of
from advisor.model import Failure, Interval, Neighbour, Run
from advisor.objective import Objective

FEWEST = 2
"""Rounds that an interval needs, and runs that tell a speed.

One value has no standard deviation, so two are the least."""
WON = 4
"""Rounds that, all won, make a gain likely: of equal arms one in 16 tests wins four.

Judgement: three are won by chance in one test of eight. More hides gains of short calls."""
PROBE_MARGIN = 2.0
"""True cost of the hooks over the cost that they measure of themselves.

Record: a sampler whose forwards take 1.2 ms (command one at batch 1, two CPUs, 13 interleaved pairs
of whole processes) ran 7 +- 2 % slower under the probe, which measured 3.6 % as its own cost. In
one process, where a turn has the hooks and the next has none, the two agree. Too small claims a
gain that the probe made, too large hides one of tiny steps."""
MOST_PROBE_COST = 0.5
"""Largest part of a gain's ratio that is put down to the probe: of 2x it may leave 1x.

Judgement."""
LARGEST_LOG = 300.0
"""Log gains are cut to this, so that exp() stays finite.

Only a few rounds that differ wildly reach it, and they bound nothing."""
UNDER_LOAD = "Some rounds ran under background load; rerun on an idle machine."


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rounds of one test, in order, and the gain that they prove.

    Load of other programs decides what a round may be used for:

        usable     without a failure; the quiet ones alone, if these are enough
        fair       of those, where load cannot have favoured an arm: the upper bound
        counted    the fair ones, or what stands in for them: estimate and lower bound

    Runs of the first variant `outside` the rounds are the call's baselines, which were run
    anyway. They tell if the machine itself changed its speed, and then the interval covers both.
    """

    ab_test: ABTest
    rounds: tuple[Round, ...]
    outside: tuple[Run, ...] = ()
    """Uncontended baselines of this call, if speeds are compared with the original; else none."""
    failure: Failure | None = None
    """First failure in the rounds, which ended the test: nothing is proven then."""
    cut_short: bool = False
    remaining_s: float

    @cached_property
    def usable(self) -> tuple[Round, ...]:
        """Uncontended rounds if enough, else all without a failure."""
        unfailed = tuple(r for r in self.rounds if not r.failed)
        quiet = tuple(r for r in unfailed if self.contended(r) is None)
        return quiet if len(quiet) >= self.ab_test.rounds else unfailed

    @cached_property
    def fair(self) -> tuple[Round, ...]:
        """Rounds that no background load slowed, or all arms alike."""
        return tuple(r for r in self.usable if self._is_fair(r))

    @cached_property
    def counted(self) -> tuple[Round, ...]:
        """Rounds behind the interval: the fair ones.

        If too few, those join in which the first variant was not slowed: a slowed candidate only
        makes the gain look smaller. If too few still, those join in which the most that other
        programs may have slowed the first variant is known (`_log_slowdown_at_most`).
        """
        fair = self.fair
        if len(fair) >= FEWEST:
            return fair
        sound = tuple(r for r in self.usable if self._is_sound(r, self.ab_test.names[0]))
        if len(sound) >= FEWEST:
            return sound
        return tuple(r for r in self.usable if self._log_slowdown_at_most(r) is not None)

    @property
    def used_contended_rounds(self) -> bool:
        return any(self.contended(r) is not None for r in self.usable)

    def contended(self, round_: Round) -> str | None:
        """Names of the arms that others disturbed in this round, or may have.

        They may have where a run has no reading of the load and another of the test has one.
        """
        return self._disturbed(round_.runs)

    def _disturbed(self, runs: Mapping[str, TrialResult]) -> str | None:
        if self.ab_test.purpose == "quality":  # load changes no result
            return None
        return contended_arms(runs, watched=self._watched)

    @cached_property
    def _watched(self) -> bool:
        """True if the load beside at least one run of the test is known."""
        return any(is_watched(round_.runs) for round_ in self.rounds)

    def _is_fair(self, round_: Round) -> bool:
        return self.contended(round_) is None or alike(round_.runs)

    def _is_sound(self, round_: Round, arm: str) -> bool:
        """True if others did not slow this run, or slowed the whole round alike."""
        return self._disturbed({arm: round_.runs[arm]}) is None or self._is_fair(round_)

    def _log_slowdown_at_most(self, round_: Round) -> float | None:
        """Log of the most by which others slowed the first variant's rate; None if unknown.

        A program with many threads waits for CPUs that others hold where one with a single
        thread does not, so on a busy machine each round may disturb one arm alone. Others took
        no more from it than the CPU time that they had. With all of that it would have run
        faster by no more than its own CPU time would have grown. No such bound is known for a
        card or for stolen time.
        """
        first = self.ab_test.names[0]
        if self._is_sound(round_, first):
            return 0.0
        run = round_.runs[first].run
        if run is None:
            return None
        load = run.disturbance
        stolen = (load.steal_share or 0.0) >= numbers.WORTH_SAYING
        if stolen or load.foreign_gpu_pids or load.clocks_held:
            return None
        if not load.own_cpus or load.others_cpus is None:
            return None
        return math.log1p(load.others_cpus / load.own_cpus)

    @property
    def disturbers(self) -> tuple[Neighbour, ...]:
        """Programs that ran beside any run of the test, busiest first."""
        runs = [
            a.run
            for round_ in self.rounds
            for a in round_.runs.values()
            if a.run is not None
        ]
        return neighbours(runs)

    def runs(self, arm: str) -> tuple[Run, ...]:
        """Runs of `arm` in the rounds that count."""
        return runs_of(self.counted, arm)

    def collapsed(self, arm: str) -> int:
        """Number of an arm's collapsed runs in the rounds that count; they still count."""
        return collapsed([run.units_per_s for run in self.runs(arm)])

    def log_gains(self, objective: Objective, arm: str, rounds: Rounds) -> list[float]:
        """Log gains of `arm` over the first, by round."""
        first = runs_of(rounds, self.ab_test.names[0])
        pairs = zip(first, runs_of(rounds, arm), strict=True)
        return [
            objective.log_merit(after) - objective.log_merit(before)
            for before, after in pairs
        ]

    def interval(self, objective: Objective, arm: str = AFTER) -> Interval | None:
        """Gain of `arm` over the first variant, 1.0 for none.

        The estimate is the ratio of median scores, as one computes it from the table, unless that
        lies outside the bounds. Bounds cover the first variant's drift since its baselines. None
        below two rounds, after a failure, or where a figure of the card's counters would have to
        be corrected for load.
        """
        bounds = self._before_drift(objective, arm)
        if bounds is None:
            return None
        typical = self._typical(objective, arm)
        ratio = objective.metric.gain(
            self._typical(objective, self.ab_test.names[0]), typical
        )
        estimate = stats.estimate_inside(bounds.low, bounds.high, ratio, bounds.estimate)
        covered = [estimate]
        if outside := self._drift(objective, bounds):
            covered.append(objective.metric.gain(outside, typical))
        low, high = min(bounds.low, *covered), max(bounds.high, *covered)
        return replace(bounds, estimate=estimate, low=low, high=high)

    def _before_drift(self, objective: Objective, arm: str) -> Interval | None:
        """Gain and its bounds, before the first variant's drift is added.

        Load only slows: the lower bound takes rounds in which it may have slowed `arm`, too, the
        upper one none.
        """
        if self.failure or len(self.counted) < FEWEST:
            return None
        if objective.metric.from_card and any(
            map(self._log_slowdown_at_most, self.counted)
        ):
            return (
                None  # CPU time bounds what others took of a rate, not of a card's figure
            )
        counted = self._bounds(objective, arm, self.counted)
        low = counted.low + math.log(self._gain_left_after_probe(arm))
        if len(self.fair) < FEWEST:
            return replace(as_gains(replace(counted, low=low)), high=math.inf)
        fair = self._bounds(objective, arm, self.fair)
        estimate = stats.estimate_inside(low, fair.high, counted.estimate, fair.estimate)
        return as_gains(replace(counted, estimate=estimate, low=low, high=fair.high))

    def _bounds(self, objective: Objective, arm: str, rounds: Rounds) -> Interval:
        """Log gain and its bounds by `rounds`, and by the sound runs of the other ones.

        The first variant's runs are raised by all that others may have slowed them. Its baselines
        only move a bound outwards.
        """
        names = (self.ab_test.names[0], arm)
        used = {round_.number for round_ in rounds}
        others = [round_ for round_ in self.usable if round_.number not in used]

        def logs(runs: Sequence[Run]) -> list[float]:
            return [objective.log_merit(run) for run in runs]

        first, last = (logs(runs_of(rounds, one)) for one in names)
        slowed = [self._log_slowdown_at_most(round_) or 0.0 for round_ in rounds]
        first = list(map(operator.add, first, slowed))
        beside = [
            logs(runs_of([other for other in others if self._is_sound(other, one)], one))
            for one in names
        ]
        return stats.comparison_interval(
            (first, last),
            (beside[0], beside[1]),
            logs(self.outside),
            sigma=self.ab_test.sigma,
        )

    def _gain_left_after_probe(self, arm: str) -> float:
        """Factor on the lower bound, from 1 for all of it down to 1 - MOST_PROBE_COST.

        What is left of a gain if the probe cost the first variant a larger share of its time
        than `arm`. A step below a millisecond loses much to the probe, a large batch's little.
        """
        first, after = (
            statistics.median(run.probe_share for run in runs_of(self.usable, name))
            for name in (self.ab_test.names[0], arm)
        )
        return 1 - min(max(0.0, first - after) * PROBE_MARGIN, MOST_PROBE_COST)

    def _typical(self, objective: Objective, arm: str) -> float:
        return statistics.median(objective.score(run) for run in self.runs(arm))

    def _drift(self, objective: Objective, bounds: Interval) -> float | None:
        """First variant's score outside the rounds; None unless the machine's speed changed.

        It has if that score differs from the one in the rounds by more than half the width of
        `bounds`, in logs.
        """
        if len(self.outside) < FEWEST:
            return None
        outside = statistics.median(objective.score(run) for run in self.outside)
        change = objective.metric.gain(
            self._typical(objective, self.ab_test.names[0]), outside
        )
        half = (math.log(bounds.high) - math.log(bounds.low)) / 2
        return outside if abs(math.log(change)) > half else None

    def drift_note(self, objective: Objective, unit: str) -> str | None:
        """Sentence on the first variant's drift, in `unit` (`samples/s`)."""
        bounds = self._before_drift(objective, AFTER)
        outside = bounds and self._drift(objective, bounds)
        if not outside:
            return None
        inside = self._typical(objective, self.ab_test.names[0])
        return (
            f"The original ran at {numbers.number(outside)} {unit} before the comparison and at "
            f"{numbers.number(inside)} {unit} in it. The speed of this machine changed, and the "
            "interval covers both."
        )

    def is_likely(self, objective: Objective, smallest_gain: float) -> bool:
        """True for a likely but unproven gain."""
        gain = self.interval(objective)
        if gain is None or self.proven(objective, smallest_gain):
            return False
        ratios = self.log_gains(objective, AFTER, self.counted)
        won = len(ratios) >= WON and min(ratios) > 0
        return (gain.low > 1 or won) and gain.estimate > 1

    def proven(self, objective: Objective, smallest_gain: float) -> bool:
        """True if the rounds prove a sufficient gain.

        Before drift, the lower bound must exceed `smallest_gain`; with it, there must still be a
        gain. The ratio of mean scores in the rounds that count must exceed `smallest_gain`, too:
        a faster variant that sometimes collapses may do less work in the end.
        """
        before_drift = self._before_drift(objective, AFTER)
        gain = self.interval(objective)
        if (
            before_drift is None
            or gain is None
            or gain.low <= 1
            or before_drift.low <= 1 + smallest_gain
        ):
            return False
        before, after = (
            statistics.fmean(objective.score(run) for run in self.runs(arm))
            for arm in (self.ab_test.names[0], AFTER)
        )
        return objective.metric.gain(before, after) > 1 + smallest_gain


def as_gains(log_gains: Interval) -> Interval:
    """An interval of log gains as one of gains; bounds stay finite."""
    logs = (log_gains.estimate, log_gains.low, log_gains.high)
    estimate, low, high = (
        math.exp(max(-LARGEST_LOG, min(LARGEST_LOG, log))) for log in logs
    )
    return replace(log_gains, estimate=estimate, low=low, high=high)


def chained(parts: Sequence[Comparison], objective: Objective) -> Interval | None:
    """Chain the gains of several steps: A to B, then B to C.

    None without a step, or where one has no interval. Rounds of different steps are independent,
    so the distances of the bounds add by their squares, as the legs of a right triangle do (Zou
    and Donner, *Statistics in Medicine* 27, 2008).
    """
    intervals = [part.interval(objective) for part in parts]
    steps = [step for step in intervals if step is not None]
    if not parts or len(steps) < len(parts):
        return None
    if len(steps) == 1:
        return steps[0]
    logs = [math.log(step.estimate) for step in steps]
    below, above = (
        math.hypot(
            *(math.log(bound) - log for bound, log in zip(bounds, logs, strict=True))
        )
        for bounds in ([step.low for step in steps], [step.high for step in steps])
    )
    whole, rounds = sum(logs), min(step.n for step in steps)
    log_gain = Interval(estimate=whole, low=whole - below, high=whole + above, n=rounds)
    return as_gains(log_gain)
