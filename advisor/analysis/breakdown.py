"""Breakdown of the window: loading, compute, copies, waits.

Fetches and saves are recorded throughout the window, so their shares are of all of it.
Calls, passes and copies are recorded while every hook is in: what is left of the window is divided
as that stretch was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.analysis import device_time, spans
from advisor.analysis.events import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.device_time import DeviceClock
    from advisor.analysis.events import EventLog
    from advisor.analysis.step_series import StepSeries
    from advisor.analysis.window import Window


def shares(
    log: EventLog, window: Window, stretch: Span, clock: DeviceClock | None = None
) -> dict[str, float]:
    """Shares of the window without its validation; sum is 1.

    `stretch`: time after warm-up in which every kind of event was recorded.
    """
    if window.seconds <= 0:
        return {}
    parts: dict[str, float] = {}
    left = spans.without([Span(window.start, window.end)], window.series.aside)
    saving, left = spans.split(left, spans.merged(log.saves))
    if saving:
        parts["saving"] = saving
    waits = loader_waits(log, window.series, clock)
    if waits is not None and clock is None:
        parts["data_wait"], left = spans.split(left, spans.merged(waits))
    rest = spans.seconds(left)
    taken = spans.merged([*window.series.aside, *log.saves])
    watched = spans.without([stretch], taken)
    found = (
        _on_host(log, window.series, watched)
        if clock is None
        else _on_device(log, window.series, watched, clock)
    )
    total = sum(found.values())
    for name, part in found.items():
        parts[name] = parts.get(name, 0.0) + (rest * part / total if total > 0 else 0.0)
    if total <= 0:
        parts["other"] = rest
    return {name: part / window.seconds for name, part in parts.items()}


def _on_host(log: EventLog, series: StepSeries, watched: list[Span]) -> dict[str, float]:
    """Host seconds of model and other work."""
    waits = loader_waits(log, series, None) or []
    left = spans.without(watched, spans.merged(waits))
    busy = spans.merged([*log.passes, *log.updates, *log.calls])
    compute, left = spans.split(left, busy)
    return {"compute": compute, "other": spans.seconds(left)}


def _on_device(
    log: EventLog, series: StepSeries, watched: list[Span], clock: DeviceClock
) -> dict[str, float]:
    """Seconds of device work and its waits."""
    fetches = [] if series.loader is None else loader_waits(log, series, None) or []
    host = device_time.Host(
        fetches=fetches, calls=_calls(log, fetches), copies=log.copies, waits=log.waits
    )
    return device_time.seconds(host, clock, log.device_copies, watched)


def _calls(log: EventLog, fetches: Sequence[Span]) -> list[Span]:
    """Spans of forwards, backwards and optimizer steps."""
    passes = [Span(each.start, each.end) for each in log.calls]
    passes += [Span(each.start, each.end) for each in log.passes]
    inside = spans.merged([*passes, *fetches])
    return [*passes, *spans.without(spans.merged(log.updates), inside)]


def wait_share(log: EventLog, window: Window, clock: DeviceClock | None = None) -> float | None:
    """Share of the window inside the loader's `__next__`.

    None without a loader, and where another thread than the one that works waits for it.
    """
    waits = loader_waits(log, window.series, clock)
    if window.seconds <= 0 or waits is None:
        return None
    inside = spans.seconds_inside(waits, [Span(window.start, window.end)])
    return min(1.0, inside / window.seconds)


def loader_waits(log: EventLog, series: StepSeries, clock: DeviceClock | None) -> list[Span] | None:
    """Stretches in which the loader delayed work."""
    if series.loader is None or log.read_aside(series.loader):
        return None
    own = {series.loader, *series.beside}
    waits = [Span(f.start, f.end) for f in log.fetches if f.loader in own]
    if clock is None:
        return waits
    idle = [Span(max(start, clock.done(start)), end) for start, end in waits]
    return [span for span in idle if span.end > span.start]
