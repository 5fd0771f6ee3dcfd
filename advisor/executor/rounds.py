"""Rounds: every arm once, in fresh processes.

The order flips with every counted round, so that a machine that becomes slower favours no arm. A
round in which others used the machine runs again as a whole, in the same order: to repeat the
slowed arm alone would favour it.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor import stats
from advisor.errors import NodeLostError
from advisor.executor.requests import TrialResult
from advisor.model import Run

COLLAPSED = 2.0
"""A run collapsed if the others of its arm are so many times as fast.

Judgement: between the slow modes of a host that `benchmarks.bounds` plays, 1.54x, and the tenth of
its speed to which `benchmarks.search_quality --collapse` lets a run fall."""
MOST_COLLAPSED = 4
"""Most collapsed runs of an arm that add rounds; more are no accident.

Judgement: to outlive four takes 29 rounds (`stats.pairs_that_outlive`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run of every arm, or up to a failed one."""

    number: int
    runs: Mapping[str, TrialResult]
    contended: str | None = None
    """Reason to run it again: it is none of the planned rounds."""
    failed: bool = False
    """An arm failed; no later round."""


Rounds = Sequence[Round]


Turns = Sequence[tuple[str, int]]
"""Arms of a round in order, each with the round's number, from 1."""


def interleaved(
    arms: Sequence[str],
    run: Callable[[Sequence[Turns]], Sequence[dict[str, TrialResult]]],
    *,
    why_repeat: Callable[[Mapping[str, TrialResult]], str | None],
    failed: Callable[[TrialResult], bool] = lambda _: False,
    at_once: Callable[[], int] = lambda: 1,
) -> Iterator[Round]:
    """Run rounds until the caller stops.

    `run` takes `at_once` rounds and returns the runs of each, up to a failed one. `why_repeat`
    returns why a whole round does not count and is run again, or None. Rounds of a lost node
    begin again.
    """
    orders: Iterator[tuple[str, ...]] = itertools.cycle(
        [tuple(arms), tuple(reversed(arms))]
    )
    counted = itertools.count(1)
    while True:
        wave = list(zip(itertools.islice(orders, max(1, at_once())), counted, strict=False))
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
            reason = why_repeat(runs_by_arm)
            yield Round(number=number, runs=runs_by_arm, contended=reason)
            if reason is not None:
                again.append(order)
        if again:
            orders = itertools.chain(again, orders)


def runs_of(rounds: Rounds, arm: str) -> tuple[Run, ...]:
    """Successful runs of one arm."""
    return tuple(run for round_ in rounds if (run := round_.runs[arm].run) is not None)


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
