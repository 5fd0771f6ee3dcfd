"""What interleaved rounds say of two arms: an interval, and on what kind of machine."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import stats
from advisor.executor.requests import disturbed
from advisor.model import Interval, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.executor.requests import ABTest, TrialResult
    from advisor.executor.rounds import Round
    from advisor.model import Failure, Neighbour
    from advisor.objective import Objective

BEFORE, AFTER = "before", "after"
ALPHA = 0.025
"""How often a bound may be wrong."""
ALIKE = 0.25
"""Two arms were disturbed alike where others held so nearly the same number of CPUs: the larger
of a quarter of a CPU and a quarter of what they held."""
FEWEST = 2
"""Rounds that an interval needs."""
COLLAPSED = 2.0
"""A run collapsed where the other runs of its arm are so many times as fast."""
MOST_COLLAPSED = 4
"""Runs of one arm for which a proof goes on; what collapses more often is no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rounds of one contest, in the order in which they were run."""

    ab_test: ABTest
    rounds: tuple[Round[TrialResult], ...]
    failure: Failure | None = None
    """What ended it: nothing is proven then."""
    cut_short: bool = False
    """The budget ended before the rounds did."""
    remaining_s: float

    @property
    def uncontended(self) -> tuple[Round[TrialResult], ...]:
        """Whole rounds that nobody disturbed."""
        return tuple(r for r in self.rounds if not r.broken and self._why(r) is None)

    def _why(self, round_: Round[TrialResult]) -> str | None:
        return None if self.ab_test.purpose == "quality" else why_disturbed(round_.runs)

    @property
    def counted(self) -> tuple[Round[TrialResult], ...]:
        """The rounds that the interval rests on.

        Where the machine stayed busy, rounds whose arms were disturbed alike stand in. Where that
        leaves one alone, the one disturbed least unlike stands beside it, and the spread shows it.
        Never several: a neighbour that slows the same arm every time would prove anything.
        """
        quiet = self.uncontended
        if len(quiet) >= self.ab_test.rounds:
            return quiet
        whole = tuple(r for r in self.rounds if not r.broken)
        fair = tuple(r for r in whole if self._why(r) is None or alike(r.runs))
        if len(fair) != FEWEST - 1:
            return fair
        least = min(whole, key=lambda r: math.inf if r in fair else _apart(_held(r.runs)))
        return tuple(r for r in whole if r in fair or r is least)

    @property
    def stood_in(self) -> bool:
        """Whether disturbed rounds had to be counted."""
        return any(self._why(r) is not None for r in self.counted)

    @property
    def sigma(self) -> float:
        """The least spread of a round's log gain: this host's, or what disturbed one arm alone.

        Who holds one CPU more beside one arm may halve its rate.
        """
        if self.ab_test.purpose == "quality":
            return self.ab_test.sigma
        apart = [_apart(_held(r.runs)) for r in self.counted if not alike(r.runs)]
        return max(self.ab_test.sigma, math.log1p(max(apart, default=0.0)))

    @property
    def measured(self) -> bool:
        """Whether `sigma` is a spread that was measured, and not one that is feared."""
        return self.sigma == self.ab_test.sigma > 0

    def collapsed(self, arm: str) -> int:
        """Runs of one arm in the counted rounds that collapsed; they count as they are."""
        return collapsed([run.units_per_s for run in self.runs(arm)])

    def runs(self, arm: str) -> tuple[Run, ...]:
        """Runs of one arm in the counted rounds."""
        return tuple(run for r in self.counted if (run := r.runs[arm].run) is not None)

    def log_gains(self, objective: Objective) -> list[float]:
        """ln of how many times better `after` was, a counted round."""
        pairs = zip(self.runs(BEFORE), self.runs(AFTER), strict=True)
        return [objective.log_gain(before, after) for before, after in pairs]

    def interval(self, objective: Objective) -> Interval | None:
        """Gain of `after` over `before`; None without two rounds, or where an arm failed."""
        return (
            None
            if self.failure
            else bounds(self.log_gains(objective), self.sigma, measured=self.measured)
        )

    @property
    def is_futile(self) -> bool:
        """Whether the rounds that are left would not prove what is sought, were the centre better
        by a standard error than it looks so far.

        To end for that proves nothing that was not so, and leaves the clock to what may gain.
        """
        minimum_effect, rounds = self.ab_test.minimum_effect, self.ab_test.rounds
        gains = (
            self.log_gains(minimum_effect.objective) if minimum_effect and not self.failure else []
        )
        if minimum_effect is None or not FEWEST < len(gains) < rounds:
            return False
        spread = statistics.stdev(gains)
        max_rounds = statistics.fmean(gains) + spread / len(gains) ** 0.5
        half_width = stats.t_quantile(1 - ALPHA, rounds - 1) * spread / rounds**0.5
        return math.exp(max_rounds - half_width) <= 1 + minimum_effect.gain

    def proven(self, objective: Objective, smallest_gain: float) -> bool:
        """Whether the whole interval lies above the smallest gain worth a change, and so do all
        runs together: what is faster and collapses for it is none."""
        interval = self.interval(objective)
        if interval is None or interval.low <= 1 + smallest_gain:
            return False
        before, after = (
            statistics.fmean(objective.score(run) for run in self.runs(arm))
            for arm in (BEFORE, AFTER)
        )
        return objective.gain(before, after) > 1 + smallest_gain


def bounds(
    log_gains: Sequence[float], sigma: float = 0.0, *, measured: bool = False
) -> Interval | None:
    """Log gains of independent rounds to a gain with its 95 % bounds; None with fewer than two.

    The exact bounds of the signed-rank statistic where there are rounds enough. Below that,
    Student's with a spread that is never taken to be less than `sigma`, which is known of this
    host and, where it was `measured`, one more degree of freedom: two rounds can agree, or differ,
    by luck.
    """
    if len(log_gains) < FEWEST:
        return None
    if len(log_gains) >= stats.fewest_pairs(ALPHA):
        found = stats.walsh_interval(log_gains, ALPHA)
    else:
        known = sigma if measured else 0.0
        found = stats.t_interval(log_gains, sigma_at_least=sigma, known_sigma=known)
    return Interval(
        estimate=math.exp(found.estimate),
        low=math.exp(found.low),
        high=math.exp(found.high),
        n=found.n,
    )


def chained(parts: Sequence[Comparison], objective: Objective) -> Interval | None:
    """The gain of all steps together: A to B in the first, B to C in the next; None without any.

    Rounds of the steps are independent, so a sum of one of each is as good a draw of the whole as
    a round of A against the last would be, and the same bounds hold for it.
    """
    if not parts or any(part.failure for part in parts):
        return None
    gains = [part.log_gains(objective) for part in parts]
    sigma = math.sqrt(sum(part.sigma**2 for part in parts))
    measured = all(part.measured for part in parts)
    return bounds([sum(each) for each in zip(*gains, strict=False)], sigma, measured=measured)


def collapsed(rates: Sequence[float]) -> int:
    """How many of these lie at less than half of the median of the others."""
    found = 0
    for place, rate in enumerate(rates):
        others = [*rates[:place], *rates[place + 1 :]]
        found += bool(others) and rate * COLLAPSED < statistics.median(others)
    return found


def rounds_wanted(planned: int, runs: Mapping[str, Sequence[float]]) -> int:
    """Rounds after which `planned` ones are enough, by the rates of both arms so far.

    One run that collapsed decides six rounds whatever the others say. So there are as many as
    outlive those of the arm that has more of them, whichever it is; all of them count. Nothing but
    the number of collapsed runs is looked at, so the bounds hold as if it had been fixed before.
    """
    most = max(collapsed(rates) for rates in runs.values())
    if not most or most > MOST_COLLAPSED:
        return planned
    return max(planned, stats.pairs_that_outlive(most, ALPHA))


def alike(runs: Mapping[str, TrialResult]) -> bool:
    """Whether what others held meanwhile was nearly the same in all arms of a round."""
    return held_alike(_held(runs))


def _held(runs: Mapping[str, TrialResult]) -> list[float | None]:
    return [a.run.disturbance.others_cpus for a in runs.values() if a.run is not None]


def _apart(others_cpus: Sequence[float | None]) -> float:
    held = [cpus or 0.0 for cpus in others_cpus]
    return max(held) - min(held)


def held_alike(others_cpus: Sequence[float | None]) -> bool:
    """Whether these are nearly the same number of CPUs, one an arm; None is none that is known."""
    most = max(cpus or 0.0 for cpus in others_cpus)
    return _apart(others_cpus) <= max(ALIKE, ALIKE * most)


def why_disturbed(runs: Mapping[str, TrialResult]) -> str | None:
    """The arms of a round that were disturbed, by name; None if none was."""
    names = [arm for arm, attempt in runs.items() if attempt.run and disturbed(attempt.run)]
    return ", ".join(names) or None


def neighbours(runs: Sequence[Run]) -> tuple[Neighbour, ...]:
    """Who disturbed `runs`, by name: the most that each of them held, the busiest first."""
    return busiest(other for run in runs for other in run.disturbance.who)


def busiest(seen: Iterable[Neighbour]) -> tuple[Neighbour, ...]:
    """Each name once, with the most it was seen to hold, the busiest first."""
    most: dict[str, Neighbour] = {}
    for other in seen:
        if other.name not in most or most[other.name].cpus < other.cpus:
            most[other.name] = other
    return tuple(sorted(most.values(), key=lambda other: -other.cpus))
