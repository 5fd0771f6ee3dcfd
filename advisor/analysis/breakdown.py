"""Breakdown of time: work, networks and waits of a window, phases of a run.

Fetches and saves are recorded throughout; the rest is divided like the recorded steps.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from advisor.analysis import device_time, events
from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import EventLog, Span
from advisor.analysis.step_series import StepSeries, calls_of_networks, most_common
from advisor.analysis.window import Window
from advisor.model import TRAINING_STEPS, RunPhase, Shares, Stage, SyncPoint

MOST_POINTS = 8
RARE = 0.01
"""Fewer calls a step are none of the loop's."""


def shares(log: EventLog, window: Window, stretch: Span, clock: DeviceClock) -> Shares:
    """Shares of the window without its validation; sum is 1, if steps were recorded."""
    series = window.series
    found: dict[str, float] = {}
    left = events.without([Span(window.start, window.end)], series.aside)
    saving, left = events.split(left, events.merged(log.saves))
    if saving:
        found["saving"] = saving
    waits = loader_waits(log, series, clock)
    rest = events.seconds(left)
    if waits is not None:
        waited_s = events.seconds_inside(waits, left)
        if clock.marks:
            waited_s = _idle_waits_s(log, series, waits, left, stretch) or waited_s
        found["data_wait"], rest = waited_s, rest - waited_s
    waits = waits or []
    watched = events.without([stretch], events.merged([*series.aside, *log.saves, *waits]))
    if clock.marks:
        parts = device_time.seconds(log, waits, clock, watched)
    else:
        busy = events.merged([*log.passes, *log.updates, *log.calls])
        compute, other = events.split(watched, busy)
        parts = {"compute": compute, "other": events.seconds(other)}
    total = sum(parts.values())
    if total > 0:
        found.update({name: rest * part / total for name, part in parts.items()})
    return Shares(**{name: part / window.seconds for name, part in found.items()})


def _idle_waits_s(
    log: EventLog,
    series: StepSeries,
    waits: list[Span],
    left: list[Span],
    stretch: Span,
) -> float | None:
    """Seconds of `left` in which a device idled for the loader; None without a record.

    Where steps are only counted a mark comes each 20 ms, and does not tell that the device
    still worked for a short step before. So the part of the loader's time in which it idled
    is that of the recorded stretch.
    """
    own = events.merged(_own_fetches(log, series))
    recorded_s = events.seconds_inside(own, [stretch])
    if recorded_s <= 0:
        return None
    idle = events.seconds_inside(waits, [stretch]) / recorded_s
    return idle * events.seconds_inside(own, left)


def _own_fetches(log: EventLog, series: StepSeries) -> Iterator[Span]:
    for fetch in log.fetches:
        if fetch.loader in series.loaders:
            yield Span(fetch.start, fetch.end)


def loader_waits(
    log: EventLog, series: StepSeries, clock: DeviceClock
) -> list[Span] | None:
    """Waits for the loader without work on a device; None without one."""
    if series.loader is None or log.loader(series.loader).other_thread:
        return None  # or if another than the working thread waits
    own = _own_fetches(log, series)
    return events.merged((clock.done(fetch.start), fetch.end) for fetch in own)


def backward_share(log: EventLog, stretch: Span, clock: DeviceClock) -> float | None:
    """Share of the recorded stretch in backward passes; None without one."""
    seconds = stretch.end - stretch.start
    if seconds <= 0 or not log.backwards:
        return None
    return min(
        1.0, events.seconds_inside(_worked(log.backwards, clock), [stretch]) / seconds
    )


def _worked(calls: Sequence[Sequence[float]], clock: DeviceClock) -> list[Span]:
    """Spans from when a device could begin each call until done."""
    return [Span(max(each[0], clock.done(each[0])), clock.done(each[1])) for each in calls]


def stages(
    log: EventLog, window: Window, stretch: Span, clock: DeviceClock
) -> tuple[Stage, ...]:
    """Networks that an inference calls in turn, by their first calls."""
    seconds = stretch.end - stretch.start
    units = (window.units_per_s() or 0.0) * seconds
    if window.series.kind in TRAINING_STEPS or units <= 0:
        return ()  # training forwards tell nothing of backwards
    found = []
    for module, own in sorted(calls_of_networks(log).items()):
        calls = [call for call in own if stretch.start < call.end <= stretch.end]
        if calls:
            stage = Stage(
                name=log.module(module).name,
                site=log.module(module).site,
                share=min(
                    1.0, events.seconds_inside(_worked(calls, clock), [stretch]) / seconds
                ),
                calls_per_unit=len(calls) / units,
                batch=most_common([call.items for call in calls]),
            )
            found.append(stage)
    return tuple(found) if len(found) > 1 else ()


def sync_points(log: EventLog, window: Window) -> tuple[SyncPoint, ...]:
    """Waiting lines of the recorded steps, the costliest first."""
    series = window.series
    bounds = _recorded(log, series.bounds[window.first : window.last + 1])
    bounds = bounds or _recorded(log, series.bounds)  # the window may be only counted
    if not bounds:
        return ()
    many = len(bounds) - 1
    lines: dict[tuple[str, str], list[float]] = {}
    for wait in log.waits:
        if wait.site and bounds[0] < wait.end <= bounds[-1]:
            lines.setdefault((wait.site, wait.name), []).append(wait.end - wait.start)
    points = [
        SyncPoint(site=site, call=call, per_step=len(took) / many, ms=1000.0 * fmean(took))
        for (site, call), took in lines.items()
        if len(took) >= RARE * many
    ]
    points.sort(key=lambda point: -point.per_step * point.ms)
    return tuple(points[:MOST_POINTS])


def _recorded(log: EventLog, bounds: Sequence[float]) -> Sequence[float]:
    """Bounds of steps with every call recorded, at least two."""
    if not log.waits:
        return []
    start, end = log.hooked_spans()[0]
    since, until = max(start, log.waits[0].start), min(end, log.waits[-1].end)
    held = [bound for bound in bounds if since <= bound <= until]
    return held if len(held) > 1 else []


def phases(log: EventLog, series: StepSeries) -> tuple[RunPhase, ...]:
    """Phases from the first finished step to the last event, by the host's clock."""
    if not series.steps:
        return ()
    start = series.bounds[0]
    end = max([log.last_time() or start, *(save.end for save in log.saves[-1:])])
    own = [fetch for fetch in log.fetches if fetch.loader in series.loaders]
    between = [Span(old.start, new.end) for old, new in pairwise(own) if old.ended_pass]
    kinds: dict[str, Iterable[Span]] = {  # where two overlap, the first has the time
        "saving": log.saves,
        "validation": _validation(log, series),
        "between epochs": between,
        "ending": [Span(own[-1].start, end)] if own and own[-1].ended_pass else [],
    }
    left = [Span(start, end)]
    found = []
    for name, stretches in kinds.items():
        merged = events.within(events.merged(stretches), [Span(start, end)])
        seconds, left = events.split(left, merged)
        found.append(RunPhase(name=name, seconds=seconds, times=len(merged)))
    work = "training" if series.kind in TRAINING_STEPS else "inference"
    return (
        RunPhase(name=work, seconds=events.seconds(left), times=series.steps),
        *(phase for phase in found if phase.seconds > 0),
    )


def _validation(log: EventLog, series: StepSeries) -> Iterator[Span]:
    """Validation, each stretch to the end of its last pass, if any."""
    others = [fetch for fetch in log.fetches if fetch.loader not in series.loaders]
    ends = [fetch.end for fetch in others if fetch.ended_pass]
    for start, end in series.aside:
        at = bisect.bisect_right(ends, end) - 1
        yield Span(start, ends[at] if at >= 0 and ends[at] > start else end)
