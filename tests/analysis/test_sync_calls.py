"""Calls that give numbers to the host: calls and steps of one span."""

from __future__ import annotations

from advisor.analysis.breakdown import sync_points
from advisor.analysis.events import EventLog, HookChange, SyncCall
from advisor.analysis.step_series import OPTIMIZER, StepSeries
from advisor.analysis.window import Window


def told(
    items: list[int], first: int, last: int, *, counted_from: float | None = None
) -> list[float]:
    """Calls a step that are told of steps of a second each, with so many calls in each."""
    log, series = EventLog(), StepSeries(OPTIMIZER)
    for step, many in enumerate(items):
        for number in range(many):
            end = step + 0.5 * (number + 1) / many
            if counted_from is None or end <= counted_from:
                log.syncs.append(SyncCall(end - 0.001, end, "train.py:9", "item"))
        series.bounds.append(step + 1.0)
    if counted_from is not None:
        log.hooks.append(HookChange(counted_from, counting=True, calls=False))
    points = sync_points(log, Window(series, first, last), on_device=True)
    return [point.per_step for point in points]


def test_calls_and_steps_are_of_the_window() -> None:
    """An evaluation before the first step, slow first steps and what follows are none of it."""
    assert told([40, 9, 9, *[2] * 20, 30], 3, 22) == [2.0]


def test_steps_that_are_only_counted_are_none_without_calls() -> None:
    assert told([40, *[3] * 29], 15, 25, counted_from=10.0) == [3.0]
