"""Comparison of variants in interleaved rounds, with intervals.

A round runs every arm once, in fresh processes. The order flips with every counted round, so
that a machine that becomes slower favours no arm. A round in which others used the machine runs
again as a whole, in the same order: to repeat the slowed arm alone would favour it.

Load only slows. That is used where quiet rounds are too few: a gain is at least what it is while
the candidate was slowed, so the lower bound may rest on rounds that no upper bound can rest on.
"""

import itertools
import math
import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from advisor import numbers, stats
from advisor.errors import NodeLostError
from advisor.executor.requests import AFTER, BEFORE, ABTest, TrialResult, contended
from advisor.model import Failure, Interval, Neighbour, Run
from advisor.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run of every arm, or up to a failed one."""

    number: int
    runs: Mapping[str, TrialResult]
    contended: str | None = None
    """Reason why it does not count."""
    failed: bool = False
    """An arm failed; no later round."""


Rounds = Sequence[Round]
Turns = Sequence[tuple[str, int]]
"""Arms of a round in order, each with the round's number, from 1."""


def interleaved(
    arms: Sequence[str],
    run: Callable[[Sequence[Turns]], Sequence[dict[str, TrialResult]]],
    *,
    contended: Callable[[Mapping[str, TrialResult]], str | None],
    failed: Callable[[TrialResult], bool] = lambda _: False,
    at_once: Callable[[], int] = lambda: 1,
) -> Iterator[Round]:
    """Run rounds until the caller stops.

    `run` takes `at_once` rounds and returns the runs of each, up to a failed one. `contended`
    returns why a whole round does not count, or None. Rounds of a lost node begin again.
    """
    orders: Iterator[tuple[str, ...]] = itertools.cycle(
        [tuple(arms), tuple(reversed(arms))]
    )
    numbers = itertools.count(1)
    while True:
        wave = list(zip(itertools.islice(orders, max(1, at_once())), numbers, strict=False))
        try:
            runs = run([[(arm, number) for arm in order] for order, number in wave])
        except NodeLostError as lost:
            if not lost.again:
                raise
            orders = itertools.chain([order for order, _ in wave], orders)
            continue
        again = []
        for (order, number), runs_by_arm in zip(wave, runs, strict=True):
            if any(map(failed, runs_by_arm.values())):
                yield Round(number=number, runs=runs_by_arm, failed=True)
                return
            reason = contended(runs_by_arm)
            yield Round(number=number, runs=runs_by_arm, contended=reason)
            if reason is not None:
                again.append(order)
        if again:
            orders = itertools.chain(again, orders)


__all__ = ["AFTER", "BEFORE", "Comparison"]

ALIKE = 0.25
"""Largest load difference of equally contended arms, in CPUs or as a share."""
FEWEST = 2
"""Rounds that an interval needs, and runs that tell a speed."""
WON = 4
"""Rounds that, all won, make a gain likely: of equal arms one in 16 tests wins four."""
COLLAPSED = 2.0
"""A run collapsed if the others of its arm are so many times as fast."""
MOST_COLLAPSED = 4
"""Most collapsed runs of an arm that add rounds; more are no accident."""

PROBE_MARGIN = 2.0
"""True cost of the hooks over the cost that they measure of themselves, at most."""
MOST_OURS = 0.5
"""Largest share of a gain that is put down to the probe."""

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


def runs_of(rounds: Rounds, arm: str) -> tuple[Run, ...]:
    """Successful runs of one arm."""
    return tuple(run for round_ in rounds if (run := round_.runs[arm].run) is not None)


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


def collapsed(rates: Sequence[float]) -> int:
    """Number of rates below half the others' median."""
    found = 0
    for place, rate in enumerate(rates):
        others = [*rates[:place], *rates[place + 1 :]]
        found += bool(others) and rate * COLLAPSED < statistics.median(others)
    return found


def rounds_wanted(planned: int, runs: Mapping[str, Sequence[float]]) -> int:
    """Rounds that outlive the collapsed runs so far.

    At least `planned`: one collapsed run decides six rounds. Only the worse arm's number
    of collapses is used, so bounds hold as if fixed before.
    """
    collapses = max(collapsed(rates) for rates in runs.values())
    if not collapses or collapses > MOST_COLLAPSED:
        return planned
    return max(planned, stats.pairs_that_outlive(collapses))


def alike(runs: Mapping[str, TrialResult]) -> bool:
    """True if all arms had about the same load."""
    return loads_alike(
        [a.run.disturbance.others_cpus for a in runs.values() if a.run is not None]
    )


def loads_alike(others_cpus: Sequence[float | None]) -> bool:
    """True if loads are nearly equal, and none is unknown."""
    loads = [cpus for cpus in others_cpus if cpus is not None]
    if not loads or len(loads) < len(others_cpus):
        return False
    return max(loads) - min(loads) <= max(ALIKE, ALIKE * max(loads))


def is_watched(runs: Mapping[str, TrialResult]) -> bool:
    """True if the load beside one of these runs is known."""
    return any(a.run and a.run.disturbance.disturbed is not None for a in runs.values())


def contended_arms(runs: Mapping[str, TrialResult], *, watched: bool = False) -> str | None:
    """Names of a round's arms that are not known to have run undisturbed.

    `watched`: this machine tells the load beside other runs, so an arm without a reading is no
    quiet one. Where it tells of none, an unknown load is all that there is.
    """

    def counts(run: Run) -> bool:
        return contended(run) or (watched and run.disturbance.disturbed is None)

    names = [arm for arm, attempt in runs.items() if attempt.run and counts(attempt.run)]
    return ", ".join(names) or None


def neighbours(runs: Sequence[Run]) -> tuple[Neighbour, ...]:
    """Programs beside `runs` with their highest load, busiest first."""
    beside = (other for run in runs for other in run.disturbance.who)
    busiest = {other.name: other for other in sorted(beside, key=lambda other: other.cpus)}
    return tuple(sorted(busiest.values(), key=lambda other: -other.cpus))


TOLERANCE = 0.05
"""Relative difference of counts that is none: a window may end amid an item."""


def work_differences(first: Sequence[Run], other: Sequence[Run]) -> list[str]:
    """Sentences on different work for the same unit.

    Empty if equal. Only what all of a variant's runs agree on counts: inputs of changing
    length, or a figure that one run lacks, are no difference.
    """
    sentences = []
    for name, read in FACTS.items():
        old, new = _constant(first, read), _constant(other, read)
        if old is not None and new is not None and not _same(old, new):
            sentences.append(f"{name}: {_shown(old)} against {_shown(new)}")
    return sentences


FACTS: dict[str, Callable[[Run], object | None]] = {
    "unit": lambda run: run.unit,
    "counted as": lambda run: run.way or None,
    "kind of step": lambda run: run.step_kind,
    "items of the dataset": lambda run: run.effects.data_items,
    "forwards for one unit": lambda run: run.effects.forwards_per_unit,
    "shape of the inputs": lambda run: run.effects.input_shapes or None,
    "units of the whole run": lambda run: (
        (run.whole_units or None) if run.to_its_end else None
    ),
}


def _constant(runs: Sequence[Run], read: Callable[[Run], object | None]) -> object | None:
    values = [read(run) for run in runs]
    return (
        values[0] if values and all(_same(values[0], value) for value in values) else None
    )


def _same(old: object | None, new: object | None) -> bool:
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return abs(new - old) <= TOLERANCE * max(abs(old), abs(new))
    return old == new


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
