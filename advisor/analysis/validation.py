"""Validation between the steps of a training."""

from __future__ import annotations

import bisect
from statistics import median
from typing import TYPE_CHECKING

from advisor.analysis.events import Span

if TYPE_CHECKING:
    from advisor.analysis.events import EventLog
    from advisor.analysis.step_series import StepSeries

EVALUATIONS_SHARE = 0.2
"""Calls without gradients in more of the steps belong to the steps."""
WHOLE_PASSES = 0.02
"""A rollout's samples are trained on a whole number of times, within this."""


def of_other_loaders(log: EventLog, series: StepSeries) -> list[Span]:
    """Stretches in which other loaders than the measured ones were in turn.

    Each lasts until the next batch is asked for. Where a step ends before that, its batch was
    loaded ahead, and the stretch ends with the other loader's last fetch.
    """
    found: list[Span] = []
    open_: Span | None = None
    for fetch in log.fetches:
        if fetch.loader not in series.loaders:
            open_ = Span(open_.start if open_ else fetch.start, fetch.end)
        elif open_ is not None:
            found.append(_until(series.bounds, open_, fetch.start))
            open_ = None
    return found if open_ is None else [*found, open_]


def _until(bounds: list[float], stretch: Span, end: float) -> Span:
    """The stretch up to `end`, unless a step ended since."""
    at = bisect.bisect_right(bounds, stretch.end)
    trained = at < len(bounds) and bounds[at] <= end
    return stretch if trained else Span(stretch.start, end)


def of_calls(log: EventLog, root: int | None) -> tuple[list[Span], bool]:
    """Stretches of calls without gradients, each until the next call that trains.

    Calls of that sort in every step belong to the steps. Returns True as well where they are
    rollouts: they come before the first update, and the network trains on just their samples, a
    whole number of times. A validation has data of its own.
    """
    calls = [call for call in log.calls if call.module == root]
    found: list[Span] = []
    collected: list[float] = []
    trained: list[float] = []
    open_ = False
    for call in calls:
        if call.graded and found:
            trained[-1] += call.items
        if open_:
            found[-1] = Span(found[-1].start, call.start if call.graded else call.end)
        elif not call.graded:
            found.append(Span(call.start, call.end))
            collected.append(0.0)
            trained.append(0.0)
        if not call.graded:
            collected[-1] += call.items
        open_ = not call.graded
    if len(found) >= EVALUATIONS_SHARE * sum(call.graded for call in calls):
        return [], False
    if len(found) < 2 or calls[0].graded:
        return found, False
    times = median([many / each for many, each in zip(trained, collected, strict=True)][:-1])
    return found, round(times) >= 1 and abs(times - round(times)) <= WHOLE_PASSES * times
