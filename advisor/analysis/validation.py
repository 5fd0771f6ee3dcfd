"""Validation and rollouts between the steps of a training."""

from __future__ import annotations

import bisect
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from advisor.analysis.averages import median
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
    own = {series.loader, *series.beside}
    found: list[Span] = []
    open_: Span | None = None
    for fetch in log.fetches:
        if fetch.loader not in own:
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


class Evaluation(NamedTuple):
    """Stretch of gradient-free calls during training."""

    start: float
    end: float
    items: float


def evaluations(log: EventLog, root: int | None) -> list[Evaluation]:
    """Stretches of validation during training.

    Calls of that sort in every step belong to the steps.
    """
    found: list[Evaluation] = []
    steps = 0
    open_ = False
    for call in log.calls:
        if call.module != root:
            continue
        if call.graded:
            steps += 1
            open_ = False
        elif open_:
            last = found[-1]
            found[-1] = Evaluation(last.start, call.end, last.items + call.items)
        else:
            found.append(Evaluation(call.start, call.end, call.items))
            open_ = True
    return found if len(found) < EVALUATIONS_SHARE * steps else []


def until_training(log: EventLog, root: int | None, found: list[Evaluation]) -> list[Span]:
    """Stretches of evaluations, each until the next call that trains."""
    starts = [call.start for call in log.calls if call.module == root and call.graded]
    ends = [bisect.bisect_left(starts, each.end) for each in found]
    return [
        Span(each.start, starts[at] if at < len(starts) else each.end)
        for each, at in zip(found, ends, strict=True)
    ]


def rollout_passes(log: EventLog, root: int | None, found: list[Evaluation]) -> int | None:
    """Training passes per rollout sample, or None.

    A rollout comes before the first update, and the network then trains on just its samples, a
    whole number of times. A validation comes after training, on data of its own.
    """
    graded = [call for call in log.calls if call.module == root and call.graded]
    if len(found) < 2 or not graded or found[0].start > graded[0].start:
        return None
    ends = [call.end for call in graded]
    times: list[float] = []
    for one, other in pairwise(found):
        low, high = bisect.bisect_right(ends, one.end), bisect.bisect_right(ends, other.start)
        times.append(sum(call.items for call in graded[low:high]) / one.items)
    each = median(times)
    whole = round(each)
    return whole if whole >= 1 and abs(each - whole) <= WHOLE_PASSES * whole else None
