"""Stages of an inference: networks called in turn.

In a training the forwards of a network tell nothing of its backwards, so it has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.analysis import spans
from advisor.analysis.averages import most_common
from advisor.analysis.events import Span
from advisor.analysis.step_series import TRAINING, calls_of_networks
from advisor.model import Stage

if TYPE_CHECKING:
    from advisor.analysis.device_time import DeviceClock
    from advisor.analysis.events import EventLog, ForwardCall
    from advisor.analysis.window import Window

FEWEST = 2
"""Networks that make stages."""


def stages(
    log: EventLog, window: Window, stretch: Span, clock: DeviceClock | None = None
) -> tuple[Stage, ...]:
    """Networks of the recorded stretch, by first call.

    On a device the time is from when it could begin with a call until it was done with it.
    """
    series = window.series
    seconds = stretch.end - stretch.start
    if series.kind in TRAINING or seconds <= 0 or not window.units_per_s():
        return ()
    inside = {
        module: [call for call in own if stretch.start < call.end <= stretch.end]
        for module, own in calls_of_networks(log).items()
    }
    calls = {module: own for module, own in inside.items() if own}
    if len(calls) < FEWEST:
        return ()
    units = (window.units_per_s() or 0.0) * seconds
    return tuple(
        Stage(
            name=log.module(module).name,
            site=log.module(module).site,
            share=min(1.0, _busy_s(own, stretch, clock) / seconds),
            calls_per_unit=len(own) / units,
            batch=most_common([call.items for call in own]),
        )
        for module, own in sorted(calls.items())
    )


def _busy_s(calls: list[ForwardCall], stretch: Span, clock: DeviceClock | None) -> float:
    if clock is None:
        found = [Span(call.start, call.end) for call in calls]
    else:
        found = [
            Span(max(call.start, clock.done(call.start)), clock.done(call.end)) for call in calls
        ]
    return spans.seconds_inside(found, [stretch])
