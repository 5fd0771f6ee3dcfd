"""Step detection: kind of steps and units finished.

Nothing of any workload is known here, only three shapes of loop:

    optimizer step   training, or training step where no optimizer of torch's steps
    loader batch     inference over a DataLoader, a few forwards a batch
    root forward     an iterative sampler (many forwards a batch), or no loader at all
"""

from __future__ import annotations

import bisect
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from advisor.analysis import training_steps
from advisor.analysis.averages import median, most_common
from advisor.analysis.loader_roles import drawn_beside
from advisor.analysis.sampler_cycles import cycle_starts
from advisor.analysis.skipped_batches import used_batches
from advisor.analysis.step_series import (
    FORWARD,
    LOADER,
    StepSeries,
    calls_of_networks,
    dominant_module,
)

if TYPE_CHECKING:
    from advisor.analysis.events import EventLog, ForwardCall
    from advisor.model import MeasurePlan

SAMPLER_FORWARDS = 4
"""Fewest forwards a batch of an iterative sampler."""
CYCLE_PATIENCE_S = 60.0
"""Longest wait for a sampler's first item, before its forwards are taken for units."""
FEWEST_ITEMS, MARKED_SHARE = 2, 0.8
"""A network marks items if it had so many calls, nearly each followed by the dominant one's."""


class _Group(NamedTuple):
    """One batch with its forwards."""

    items: float
    calls: list[ForwardCall]
    finished: bool


def detect_steps(log: EventLog, plan: MeasurePlan, *, ended: bool = False) -> StepSeries | None:
    """Detect steps of `log`, or return None.

    `ended`: the program came to its own end, so that the last batch is a finished one.
    """
    if log.updates or log.passes:
        return training_steps.detect(log, ended=ended)
    series = _inference(log, plan, ended=ended)
    if series is not None:
        series.set_clock()
    return series


def _inference(log: EventLog, plan: MeasurePlan, *, ended: bool) -> StepSeries | None:
    """Steps of a program that does not train."""
    loader = _busiest_loader(log)
    root = dominant_module(log.hooked())
    calls = [call for call in log.calls if call.module == root]
    if loader is None:
        if root is None:
            return None
        return _without_loader(log, root, calls, plan, ended=ended)
    groups = _forwards_by_batch(log.hooked(), loader, calls)
    whole = [len(group.calls) for group in groups if (group.finished or ended) and group.calls]
    many = median(whole) if whole else max((len(group.calls) for group in groups), default=0)
    series: StepSeries | None
    if root is not None and many >= SAMPLER_FORWARDS:
        series = _sampler(loader, root, groups, plan, ended=ended)
    else:
        series = _loader_batches(log, loader, root, whole, ended=ended)
    if series is not None:
        series.beside = set(drawn_beside(log.hooked(), loader, [c.start for c in log.calls]))
    return series


# --- inference ----------------------------------------------------------------------------


def _busiest_loader(log: EventLog) -> int | None:
    """Loader that was read most of the time."""
    held: dict[int, float] = {}
    last = log.last_time()
    for index, fetch in enumerate(log.fetches):
        later = log.fetches[index + 1].start if index + 1 < len(log.fetches) else last
        until = fetch.end if fetch.ended_pass else later or fetch.end
        held[fetch.loader] = held.get(fetch.loader, 0.0) + until - fetch.start
    served = {fetch.loader for fetch in log.fetches if not fetch.ended_pass}
    held = {loader: spent for loader, spent in held.items() if loader in served}
    return max(held, key=lambda key: held[key]) if held else None


def _forwards_by_batch(log: EventLog, loader: int, calls: list[ForwardCall]) -> list[_Group]:
    starts = [call.start for call in calls]
    mine = [fetch for fetch in log.fetches if fetch.loader == loader]
    groups: list[_Group] = []
    for position, fetch in enumerate(mine):
        if fetch.ended_pass:
            continue
        low = bisect.bisect_left(starts, fetch.end)
        finished = position + 1 < len(mine)
        high = bisect.bisect_left(starts, mine[position + 1].start) if finished else len(starts)
        groups.append(_Group(fetch.items, calls[low:high], finished))
    return groups


def _loader_batches(
    log: EventLog, loader: int, root: int | None, whole: list[int], *, ended: bool
) -> StepSeries | None:
    series = StepSeries(LOADER, "items of the loader's batches", loader=loader, root=root)
    mine = [fetch for fetch in log.fetches if fetch.loader == loader]
    skipped = _skipped(log.hooked(), loader)
    series.skips = bool(skipped)
    held: float | None = None
    for fetch in mine:
        if held is not None:
            _finish(series, fetch.start, held)
        elif not series.bounds:
            series.bounds.append(fetch.start)
        else:  # the pause before a new pass belongs to its first batch
            series.marks.append(len(series.units))
        held = None if fetch.ended_pass else 0.0 if fetch.end in skipped else fetch.items
    last = log.last_time()
    if ended and held is not None and last is not None and last > series.bounds[-1]:
        _finish(series, last, held)
    series.batch = most_common([fetch.items for fetch in mine if not fetch.ended_pass])
    if whole:
        series.forwards_per_batch = series.forwards_per_unit = median(whole)
    return series if series.bounds else None


def _finish(series: StepSeries, end: float, units: float) -> None:
    """Add a step that ends at `end`."""
    series.bounds.append(end)
    series.units.append(units)
    series.finished_batches += units > 0
    series.whole_units += units


def _skipped(log: EventLog, loader: int) -> set[float]:
    """Ends of fetches whose batches were not used."""
    mine = [fetch for fetch in log.fetches if fetch.loader == loader]
    batches = [fetch for fetch in mine if not fetch.ended_pass]
    work = [call.start for call in log.calls]
    used = used_batches(batches, work, log.calls, len(mine) - len(batches))
    return {fetch.end for fetch in batches} - {fetch.end for fetch in used}


def _sampler(
    loader: int | None,
    root: int,
    groups: list[_Group],
    plan: MeasurePlan,
    *,
    ended: bool,
) -> StepSeries:
    """Step series of an iterative sampler's forwards; only the last group may be unfinished."""
    groups = [group for group in groups if group.calls]
    done = groups if ended or (groups and groups[-1].finished) else groups[:-1]
    series = StepSeries(FORWARD, loader=loader, root=root, iterative=True)
    series.batch = most_common([group.items for group in groups])
    series.finished_batches = len(done)
    series.whole_units = sum(group.items for group in done)
    per_item = [len(group.calls) * _joint(group) / group.items for group in done]
    series.forwards_per_unit = median(per_item) if per_item else plan.forwards_per_unit
    for position, group in enumerate(groups):
        per_forward = group.items / len(group.calls)
        if position == len(done):
            per_forward = _joint(group) / (series.forwards_per_unit or 1.0)
        if series.bounds:
            series.marks.append(len(series.units))
        series.units += [per_forward] * (len(group.calls) - (not series.bounds))
        series.bounds += [call.end for call in group.calls]
    if series.forwards_per_unit and groups:
        last = groups[-1]
        series.forwards_per_batch = series.forwards_per_unit * last.items / _joint(last)
    series.batches_per_step = 1.0 / (series.forwards_per_batch or 1.0)
    per_unit = f"{series.forwards_per_unit:g}" if series.forwards_per_unit else "so far unknown"
    series.source = f"root forwards / forwards per unit ({per_unit})"
    return series


def _joint(group: _Group) -> float:
    """Items that go through one forward together.

    A loader batch may be split by the program, and a forward may hold more than the batch
    (guidance, patches).
    """
    batch = most_common([call.items for call in group.calls])
    return min(batch or group.items, group.items) or 1.0


# --- no loader ----------------------------------------------------------------------------


def _without_loader(
    log: EventLog, root: int, calls: list[ForwardCall], plan: MeasurePlan, *, ended: bool
) -> StepSeries:
    """Find an iterative sampler, else count forwards."""
    positions = [index for index, call in enumerate(log.calls) if call.module == root]
    found = cycle_starts(log, root, positions)
    known = plan.forwards_per_unit
    if found is None and not known:
        return _forwards(root, _items(log, calls), calls)
    watched_s = calls[-1].end - calls[0].start
    unsure = not found and not known and not ended
    if unsure and (not log.module(root).same_shape or watched_s > CYCLE_PATIENCE_S):
        return _forwards(root, calls, calls)
    bounds = [0, *(found or ()), len(calls)]
    batch = most_common([call.items for call in calls]) or 1.0
    beside = [
        call.items
        for call in log.calls
        if call.module != root and log.module(call.module).parameters
    ]
    items = min([batch, *beside])  # guidance doubles the batch of the dominant network only
    groups = [_Group(items, calls[low:high], high < len(calls)) for low, high in pairwise(bounds)]
    return _sampler(None, root, groups, plan, ended=ended)


def _items(log: EventLog, calls: list[ForwardCall]) -> list[ForwardCall]:
    """Calls that distinguish items.

    Of networks that take turns they are those of the first, which is given the data: a detector,
    then a classifier of what it found.
    """
    starts = [call.start for call in calls]
    for others in calls_of_networks(log).values():  # in the order of their first calls
        if not FEWEST_ITEMS <= len(others) <= len(calls):
            continue
        gaps = [
            bisect.bisect_left(starts, later.start) - bisect.bisect_left(starts, call.start)
            for call, later in pairwise(others)
        ]
        if sum(map(bool, gaps)) >= MARKED_SHARE * len(gaps):
            return others
    return calls


def _forwards(root: int, items: list[ForwardCall], calls: list[ForwardCall]) -> StepSeries:
    series = StepSeries(FORWARD, root=root)
    series.count_forwards("sample", [call.items for call in items])
    series.bounds = [call.end for call in items]
    series.units = [call.items for call in items[1:]]
    series.whole_units = sum(call.items for call in items)
    series.finished_batches = len(items)
    series.forwards_per_unit = 1.0
    if items is not calls:
        together = min(most_common([call.items for call in each]) or 1.0 for each in (items, calls))
        forwarded = len(calls) * together
        series.forwards_per_unit *= round(forwarded / series.whole_units, 1)
    return series
