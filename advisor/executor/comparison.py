"""Comparison of variants by their rounds: what a gain rests on, and its bounds.

Load only slows. That is used where quiet rounds are too few: a gain is at least what it is while
the candidate was slowed, so the lower bound may rest on rounds that no upper bound can rest on.
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
of whole processes) ran 7 +- 2 % slower under the probe, which told 3.6 % of itself. In one process,
where a turn has the hooks and the next has none, the two agree. Too small claims a gain that the
probe made, too large hides one of tiny steps."""
MOST_OURS = 0.5
"""Largest share of a gain that is put down to the probe; judgement."""
WIDEST = 300.0
"""Largest log gain: a few rounds that differ wildly bound nothing."""
UNDER_LOAD = "Some rounds ran under background load; rerun on an idle machine."


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rounds of one test, in order, and the gain that they prove.

    Load beside the rounds decides which of them say what:

        whole      without a failure; the quiet ones alone, if these are enough
        fair       of those, where load cannot have favoured an arm: the upper bound
        counted    the fair ones, or what stands in for them: estimate and lower bound

    Runs of the first variant `outside` the rounds cost nothing more. They tell if the machine
    itself changed its speed, and then the interval covers both.
    """

    ab_test: ABTest
    rounds: tuple[Round, ...]
    outside: tuple[Run, ...] = ()
    """Runs of the first variant by this call outside the rounds."""
    failure: Failure | None = None
    """The end of it: nothing is proven then."""
    cut_short: bool = False
    remaining_s: float

    @cached_property
    def whole(self) -> tuple[Round, ...]:
        """Uncontended rounds if enough, else all without a failure."""
        sound = tuple(r for r in self.rounds if not r.failed)
        quiet = tuple(r for r in sound if self.contended(r) is None)
        return quiet if len(quiet) >= self.ab_test.rounds else sound

    @cached_property
    def fair(self) -> tuple[Round, ...]:
        """Rounds that no background load slowed, or all arms alike."""
        return tuple(r for r in self.whole if self._is_fair(r))

    @cached_property
    def counted(self) -> tuple[Round, ...]:
        """Rounds behind the interval: the fair ones.

        If too few, those with a sound first variant join: slowed others flatter no gain. If too
        few still, those in which what others took of the first variant is known (`_taken`).
        """
        fair = self.fair
        if len(fair) >= FEWEST:
            return fair
        sound = tuple(r for r in self.whole if self._is_sound(r, self.ab_test.names[0]))
        if len(sound) >= FEWEST:
            return sound
        return tuple(r for r in self.whole if self._taken(r) is not None)

    @property
    def used_contended_rounds(self) -> bool:
        return any(self.contended(r) is not None for r in self.whole)

    def contended(self, round_: Round) -> str | None:
        """Names of the arms that others disturbed in this round, or may have."""
        return self._disturbed(round_.runs)

    def _disturbed(self, runs: Mapping[str, TrialResult]) -> str | None:
        if self.ab_test.purpose == "quality":  # load changes no result
            return None
        return contended_arms(runs, watched=self._watched)

    @cached_property
    def _watched(self) -> bool:
        return any(is_watched(round_.runs) for round_ in self.rounds)

    def _is_fair(self, round_: Round) -> bool:
        return self.contended(round_) is None or alike(round_.runs)

    def _is_sound(self, round_: Round, arm: str) -> bool:
        """True if others did not slow this run, or slowed the whole round alike."""
        return self._disturbed({arm: round_.runs[arm]}) is None or self._is_fair(round_)

    def _taken(self, round_: Round) -> float | None:
        """Log of the most by which others slowed the first variant; None if unknown.

        A program with many threads waits for CPUs that others hold where one with a single
        thread does not, so on a busy machine each round may disturb one arm alone. Others took
        no more from it than the CPU time that they had: with all of it, its rate would have
        grown at most as its CPU time. No such bound is known for a card or for stolen time.
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
        """Programs beside all its runs, busiest first."""
        runs = [
            a.run
            for round_ in self.rounds
            for a in round_.runs.values()
            if a.run is not None
        ]
        return neighbours(runs)

    def runs(self, arm: str) -> tuple[Run, ...]:
        return runs_of(self.counted, arm)

    def collapsed(self, arm: str) -> int:
        """Number of an arm's collapsed runs; they still count."""
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

        The estimate is the ratio of median scores, if inside, as a reader would compute it from
        the table. Bounds cover the first variant's drift since its baselines. None below two
        rounds or after a failure.
        """
        bounds = self._paired(objective, arm)
        if bounds is None:
            return None
        typical = self._typical(objective, arm)
        ratio = objective.metric.gain(
            self._typical(objective, self.ab_test.names[0]), typical
        )
        gains = [stats.estimate_inside(bounds.low, bounds.high, ratio, bounds.estimate)]
        if outside := self._drift(objective, bounds):
            gains.append(objective.metric.gain(outside, typical))
        low, high = min(bounds.low, *gains), max(bounds.high, *gains)
        return replace(bounds, estimate=gains[0], low=low, high=high)

    def _paired(self, objective: Objective, arm: str) -> Interval | None:
        """Bounds of the rounds alone, as gains.

        Load only slows: the lower bound takes rounds in which it may have slowed `arm`, too, the
        upper one none.
        """
        if self.failure or len(self.counted) < FEWEST:
            return None
        if objective.metric.from_card and any(map(self._taken, self.counted)):
            return None
        low = self._bounds(objective, arm, self.counted)
        low = replace(low, low=low.low + math.log(self._slowed_by_us(arm)))
        if len(self.fair) < FEWEST:
            return replace(as_gains(low), high=math.inf)
        high = self._bounds(objective, arm, self.fair)
        estimate = stats.estimate_inside(low.low, high.high, low.estimate, high.estimate)
        return as_gains(replace(low, estimate=estimate, high=high.high))

    def _bounds(self, objective: Objective, arm: str, rounds: Rounds) -> Interval:
        """Log gain's bounds by `rounds`, and by the sound runs of the other ones."""
        names = (self.ab_test.names[0], arm)
        used = {round_.number for round_ in rounds}
        others = [round_ for round_ in self.whole if round_.number not in used]

        def logs(runs: Sequence[Run]) -> list[float]:
            return [objective.log_merit(run) for run in runs]

        first, last = (logs(runs_of(rounds, one)) for one in names)
        taken = [self._taken(round_) or 0.0 for round_ in rounds]
        first = list(map(operator.add, first, taken))
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

    def _slowed_by_us(self, arm: str) -> float:
        """Gain left if the probe slowed the first variant alone.

        A step below a millisecond loses much to the probe, a large batch's little.
        """
        first, after = (
            statistics.median(run.probe_share for run in runs_of(self.whole, name))
            for name in (self.ab_test.names[0], arm)
        )
        return 1 - min(max(0.0, first - after) * PROBE_MARGIN, MOST_OURS)

    def _typical(self, objective: Objective, arm: str) -> float:
        return statistics.median(objective.score(run) for run in self.runs(arm))

    def _drift(self, objective: Objective, bounds: Interval) -> float | None:
        """First variant's score outside the rounds, if farther off than half of `bounds`."""
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
        bounds = self._paired(objective, AFTER)
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

        All evidence of the call and the mean of all runs must show a gain: a faster
        variant that sometimes collapses may do less work in the end.
        """
        rounds, gain = self._paired(objective, AFTER), self.interval(objective)
        if (
            rounds is None
            or gain is None
            or gain.low <= 1
            or rounds.low <= 1 + smallest_gain
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
    estimate, low, high = (math.exp(max(-WIDEST, min(WIDEST, log))) for log in logs)
    return replace(log_gains, estimate=estimate, low=low, high=high)


def chained(parts: Sequence[Comparison], objective: Objective) -> Interval | None:
    """Chain the gains of several steps: A to B, then B to C; None without any.

    Rounds of different steps are independent, so the distances of the bounds add as the sides
    of a right angle do (Zou and Donner, *Statistics in Medicine* 27, 2008).
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
