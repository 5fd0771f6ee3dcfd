"""Breakdown of time: work, networks and waits of a window, phases of a run.

Fetches and saves are recorded throughout the window, so their shares are of all of it. Calls,
passes and copies are recorded only while every hook is in, usually before the window: what is left
of the window is divided as that stretch was. Both are steps of one kind, after warm-up.
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
from advisor.model import TRAINING_STEPS, NetworkStage, RunPhase, Shares, SyncPoint

MOST_POINTS = 8
"""Waiting lines told at most, the costliest ones."""
FEWEST_STEPS = 5
"""Recorded steps whose mean length tells that of the others."""
RARE = 0.01
"""Fewer calls a step are none of the loop's."""


def shares(log: EventLog, window: Window, stretch: Span, clock: DeviceClock) -> Shares:
    """Shares of the window without its validation; sum is 1, if steps were recorded.

    `stretch`: time in which every kind of event was recorded. Where it is empty, only saving and
    waits for data are told: no part of the time is made up.
    """
    series = window.series
    seconds_by_kind: dict[str, float] = {}
    left = events.without([Span(window.start, window.end)], series.aside)
    saving, left = events.split(left, events.merged(log.saves))
    if saving:
        seconds_by_kind["saving"] = saving
    waits = loader_waits(log, series, clock)
    rest = events.seconds(left)
    if waits is not None:
        waited_s = events.seconds_inside(waits, left)
        if clock.marks:
            waited_s = _idle_waits_s(log, series, waits, left, stretch) or waited_s
        seconds_by_kind["data_wait"], rest = waited_s, rest - waited_s
    waits = waits or []
    watched = events.without([stretch], events.merged([*series.aside, *log.saves, *waits]))
    if clock.marks:
        parts = device_time.seconds(log, waits, clock, watched)
    else:
        busy = events.merged([*log.passes, *log.updates, *log.calls])
        compute, other = events.split(watched, busy)
        parts = {"compute": compute, "other": events.seconds(other)}
    if clock.marks:
        parts = _of_window(
            parts, window, _recorded_steps(log, series, stretch, clock), rest
        )
    total = sum(parts.values())
    if total > 0:
        seconds_by_kind.update({name: rest * part / total for name, part in parts.items()})
    return Shares(**{name: part / window.seconds for name, part in seconds_by_kind.items()})


def _recorded_steps(
    log: EventLog, series: StepSeries, stretch: Span, clock: DeviceClock
) -> float | None:
    """Steps that the device did in the recorded stretch; None where too few tell their length.

    By its own clock: the host runs ahead at first, and queues more steps than are done.
    """
    done = [(clock.done(bound), number) for number, bound in enumerate(series.bounds)]
    inside = [span for span in done if stretch.start <= span[0] <= stretch.end]
    if len(inside) <= FEWEST_STEPS:
        return None
    (start, first), (end, last) = inside[0], inside[-1]
    off_s = [series.bounds[number] - series.clock[number] for number in (first, last)]
    step_s = (end - start - (off_s[1] - off_s[0])) / (last - first)
    watched = events.without([stretch], events.merged([*series.aside, *log.saves]))
    return events.seconds(watched) / step_s if step_s > 0 else None


def _of_window(
    parts: dict[str, float], window: Window, recorded: float | None, rest: float
) -> dict[str, float]:
    """Seconds of the recorded `parts`, with the computing of as many steps as the window has.

    A device takes the same time for a step whatever the host does meanwhile. So where steps of
    the window are slower than the `recorded` ones, beside load, the rest of each is idle; where
    they are quicker, as hooks are out, less of each is. `rest`: seconds that all parts have there.
    """
    idle = sum(parts.values()) - parts["compute"]
    if recorded is None or idle <= 0:
        return parts
    computed_s = min(rest, parts["compute"] * window.count / recorded)
    found = {name: (rest - computed_s) * part / idle for name, part in parts.items()}
    return {**found, "compute": computed_s}


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
    fetches = events.merged(_own_fetches(log, series))
    recorded_s = events.seconds_inside(fetches, [stretch])
    if recorded_s <= 0:
        return None
    idle = events.seconds_inside(waits, [stretch]) / recorded_s
    return idle * events.seconds_inside(fetches, left)


def _own_fetches(log: EventLog, series: StepSeries) -> Iterator[Span]:
    for fetch in log.fetches:
        if fetch.loader in series.loaders:
            yield Span(fetch.start, fetch.end)


def loader_waits(
    log: EventLog, series: StepSeries, clock: DeviceClock
) -> list[Span] | None:
    """Waits for the loader while the device had nothing to do; None without a loader.

    A fetch that the device still works through costs nothing: it counts from when the device was
    done. None, too, where another thread than the working one fetches: no step waits in it.
    """
    if series.loader is None or log.loader(series.loader).other_thread:
        return None
    fetches = _own_fetches(log, series)
    return events.merged((clock.done(fetch.start), fetch.end) for fetch in fetches)


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
    return [Span(max(call[0], clock.done(call[0])), clock.done(call[1])) for call in calls]


def stages(
    log: EventLog, window: Window, stretch: Span, clock: DeviceClock
) -> tuple[NetworkStage, ...]:
    """Networks that an inference calls in turn, by their first calls; none with a single one.

    On a device the time is from when it could begin with a call until it was done with it. A
    training has none: the forwards of a network tell nothing of its backwards.
    """
    seconds = stretch.end - stretch.start
    units = (window.units_per_s() or 0.0) * seconds
    if window.series.kind in TRAINING_STEPS or units <= 0:
        return ()
    networks = []
    for module, calls in sorted(calls_of_networks(log).items()):
        recorded = [call for call in calls if stretch.start < call.end <= stretch.end]
        if recorded:
            stage = NetworkStage(
                name=log.module(module).name,
                site=log.module(module).site,
                share=min(
                    1.0,
                    events.seconds_inside(_worked(recorded, clock), [stretch]) / seconds,
                ),
                calls_per_unit=len(recorded) / units,
                batch=most_common([call.items for call in recorded]),
            )
            networks.append(stage)
    return tuple(networks) if len(networks) > 1 else ()


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
    inside = [bound for bound in bounds if since <= bound <= until]
    return inside if len(inside) > 1 else []


def phases(log: EventLog, series: StepSeries) -> tuple[RunPhase, ...]:
    """Phases from the first finished step to the last event, by the host's clock."""
    if not series.steps:
        return ()
    start = series.bounds[0]
    end = max([log.last_time() or start, *(save.end for save in log.saves[-1:])])
    fetches = [fetch for fetch in log.fetches if fetch.loader in series.loaders]
    between = [Span(old.start, new.end) for old, new in pairwise(fetches) if old.ended_pass]
    kinds: dict[str, Iterable[Span]] = {  # where two overlap, the first has the time
        "saving": log.saves,
        "validation": _validation(log, series),
        "between epochs": between,
        "ending": [Span(fetches[-1].start, end)]
        if fetches and fetches[-1].ended_pass
        else [],
    }
    left = [Span(start, end)]
    interruptions = []
    for name, stretches in kinds.items():
        merged = events.within(events.merged(stretches), [Span(start, end)])
        seconds, left = events.split(left, merged)
        interruptions.append(RunPhase(name=name, seconds=seconds, times=len(merged)))
    work = "training" if series.kind in TRAINING_STEPS else "inference"
    return (
        RunPhase(name=work, seconds=events.seconds(left), times=series.steps),
        *(phase for phase in interruptions if phase.seconds > 0),
    )


def _validation(log: EventLog, series: StepSeries) -> Iterator[Span]:
    """Validation, each stretch to the end of its last pass, if any."""
    others = [fetch for fetch in log.fetches if fetch.loader not in series.loaders]
    ends = [fetch.end for fetch in others if fetch.ended_pass]
    for start, end in series.aside:
        at = bisect.bisect_right(ends, end) - 1
        yield Span(start, ends[at] if at >= 0 and ends[at] > start else end)
