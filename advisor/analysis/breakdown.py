"""Breakdown of time: work, networks and waits of a window, phases of a run.

Fetches and saves are recorded throughout the window, so their shares are of all of it. Calls,
passes and copies are recorded only while every hook is in, usually before the window. What fetches
and saves leave of the window is therefore divided as that recorded stretch was: its steps are of
the same kind, after warm-up as well.
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
"""Most lines of code that are told to wait for the device: the costliest ones.

Judgement: fewer hide a costly line behind others, more fill records with lines that cost little."""
FEWEST_STEPS = 5
"""Fewest recorded steps whose mean length stands for that of the others."""
RARE = 0.01
"""Waits a step below which a line of code is taken for no part of the loop.

Judgement: too small names lines that ran once at the start, too large hides a log every so often.
"""


def shares(log: EventLog, window: Window, stretch: Span, clock: DeviceClock) -> Shares:
    """Shares of the window's time without validation, by what the time was spent on.

    `stretch`: time in which every kind of event was recorded; the shares then sum to 1. Where
    nothing was recorded, only saving and waits for data are told: no part of the time is made up.
    """
    series = window.series
    seconds_by_kind: dict[str, float] = {}
    left = events.without([Span(window.start, window.end)], series.aside)
    saving, left = events.split(left, events.merged(log.saves))
    if saving:
        seconds_by_kind["saving"] = saving
    waits = loader_waits(log, series, clock)
    rest_s = events.seconds(left)
    if waits is not None:
        waited_s = events.seconds_inside(waits, left)
        if clock.marks:
            idle_s = _idle_waits_s(log, series, waits, left, stretch)
            waited_s = waited_s if idle_s is None else idle_s
        seconds_by_kind["data_wait"], rest_s = waited_s, rest_s - waited_s
    waits = waits or []
    watched = events.without([stretch], events.merged([*series.aside, *log.saves, *waits]))
    if clock.marks:
        parts = device_time.seconds(log, waits, clock, watched)
        steps = _recorded_steps(log, series, stretch, clock)
        parts = _of_window(parts, window, steps, rest_s)
    else:
        busy = events.merged([*log.passes, *log.updates, *log.calls])
        compute_s, other = events.split(watched, busy)
        parts = {"compute": compute_s, "other": events.seconds(other)}
    all_s = sum(parts.values())
    if all_s > 0:
        for name, part_s in parts.items():
            seconds_by_kind[name] = rest_s * part_s / all_s
    return Shares(**{name: part / window.seconds for name, part in seconds_by_kind.items()})


def _recorded_steps(
    log: EventLog, series: StepSeries, stretch: Span, clock: DeviceClock
) -> float | None:
    """Steps that the device did in the recorded stretch; None where too few tell their length.

    By the device's clock: the host runs ahead at first, and queues more steps than are done.
    """
    done = [(clock.done(bound), number) for number, bound in enumerate(series.bounds)]
    inside = [end for end in done if stretch.start <= end[0] <= stretch.end]
    if len(inside) <= FEWEST_STEPS:
        return None
    (start, first), (end, last) = inside[0], inside[-1]
    aside_before, aside_until = (
        series.bounds[number] - series.clock[number] for number in (first, last)
    )
    step_s = (end - start - (aside_until - aside_before)) / (last - first)
    watched = events.without([stretch], events.merged([*series.aside, *log.saves]))
    return events.seconds(watched) / step_s if step_s > 0 else None


def _of_window(
    parts: dict[str, float], window: Window, recorded_steps: float | None, rest_s: float
) -> dict[str, float]:
    """Seconds of the window by kind, from those of the recorded stretch (`parts`).

    A device computes as long for a step whatever the host does meanwhile. So computing is taken
    once for each step of the window, and the other kinds share what it leaves of `rest_s`, the
    seconds of all kinds in the window. Where steps of the window are slower than the recorded ones,
    beside load, more of each is idle; where they are quicker, as hooks are out, less. With an
    unknown number of recorded steps, or nothing but computing, `parts` stay as they are.
    """
    not_computing_s = sum(parts.values()) - parts["compute"]
    if recorded_steps is None or not_computing_s <= 0:
        return parts
    computing_s = min(rest_s, parts["compute"] * window.count / recorded_steps)
    left_s = rest_s - computing_s
    others = {name: left_s * part / not_computing_s for name, part in parts.items()}
    return {**others, "compute": computing_s}


def _idle_waits_s(
    log: EventLog,
    series: StepSeries,
    waits: list[Span],
    left: list[Span],
    stretch: Span,
) -> float | None:
    """Seconds of `left` in which a device idled for the loader; None where no fetch was recorded.

    Where steps are only counted, a mark of the device's work comes each 20 ms: it does not tell
    that the device was still at a short step when a fetch began. So of the fetches in `left` the
    same share is idle as of those in the recorded stretch.
    """
    fetches = events.merged(_own_fetches(log, series))
    fetching_s = events.seconds_inside(fetches, [stretch])
    if fetching_s <= 0:
        return None
    idle_share = events.seconds_inside(waits, [stretch]) / fetching_s
    return idle_share * events.seconds_inside(fetches, left)


def _own_fetches(log: EventLog, series: StepSeries) -> Iterator[Span]:
    """Fetches from the loaders that feed the steps."""
    for fetch in log.fetches:
        if fetch.loader in series.loaders:
            yield Span(fetch.start, fetch.end)


def loader_waits(
    log: EventLog, series: StepSeries, clock: DeviceClock
) -> list[Span] | None:
    """Waits for the loader while the device had nothing to do; None without a loader.

    While the device still works a fetch costs nothing: it counts from when the device was done.
    None, too, where another thread than the working one fetches: no step waits in its fetches.
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
    """For each call, the time from when a device could begin with it until it was done."""
    return [Span(clock.done(call[0]), clock.done(call[1])) for call in calls]


def stages(
    log: EventLog, window: Window, stretch: Span, clock: DeviceClock
) -> tuple[NetworkStage, ...]:
    """Networks that an inference calls in turn, by their first calls; none if it is only one.

    Their shares are of the recorded stretch. A training has none: the forwards of a network tell
    nothing of its backwards.
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
    """Lines of code at which the host waits for the device, the costliest first.

    Those of the window's steps; where these were only counted, of all steps that were recorded.
    """
    series = window.series
    bounds = _recorded(log, series.bounds[window.first : window.last + 1])
    bounds = bounds or _recorded(log, series.bounds)
    if not bounds:
        return ()
    steps = len(bounds) - 1
    lines: dict[tuple[str, str], list[float]] = {}
    for wait in log.waits:
        if wait.site and bounds[0] < wait.end <= bounds[-1]:
            lines.setdefault((wait.site, wait.name), []).append(wait.end - wait.start)
    points = [
        SyncPoint(site=site, call=call, per_step=len(took) / steps, ms=1000.0 * fmean(took))
        for (site, call), took in lines.items()
        if len(took) >= RARE * steps
    ]
    points.sort(key=lambda point: -point.per_step * point.ms)
    return tuple(points[:MOST_POINTS])


def _recorded(log: EventLog, bounds: Sequence[float]) -> Sequence[float]:
    """Those bounds of steps between which waits were recorded; none if they are fewer than two."""
    if not log.waits:
        return []
    start, end = log.hooked_spans()[0]
    since, until = max(start, log.waits[0].start), min(end, log.waits[-1].end)
    inside = [bound for bound in bounds if since <= bound <= until]
    return inside if len(inside) > 1 else []


def phases(log: EventLog, series: StepSeries) -> tuple[RunPhase, ...]:
    """Phases from the first finished step to the last event, by the host's clock.

    Time between steps that is no phase of its own belongs to the work.
    """
    if not series.steps:
        return ()
    start = series.bounds[0]
    end = max([log.last_time() or start, *(save.end for save in log.saves[-1:])])
    fetches = [fetch for fetch in log.fetches if fetch.loader in series.loaders]
    between = [Span(old.start, new.end) for old, new in pairwise(fetches) if old.ended_pass]
    ends_with_pass = bool(fetches) and fetches[-1].ended_pass
    kinds: dict[str, Iterable[Span]] = {  # where two overlap, the first has the time
        "saving": log.saves,
        "validation": _validation(log, series),
        "between epochs": between,
        "ending": [Span(fetches[-1].start, end)] if ends_with_pass else [],
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
    """Stretches of validation; each ends with the last pass over its data, if one ended in it.

    What follows until training goes on is none.
    """
    others = [fetch for fetch in log.fetches if fetch.loader not in series.loaders]
    pass_ends = [fetch.end for fetch in others if fetch.ended_pass]
    for start, end in series.aside:
        latest = bisect.bisect_right(pass_ends, end) - 1
        ended = latest >= 0 and pass_ends[latest] > start
        yield Span(start, pass_ends[latest] if ended else end)
