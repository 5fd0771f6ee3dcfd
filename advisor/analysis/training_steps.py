"""Steps of a training by updates.

Units are the items of the train loaders' batches, or of the forwards where there is no loader.
Batches that the program loaded and skipped are no units. While steps are only counted, passes are
not recorded: roles of loaders, accumulation and skipping are those of the hooked part of the log.
"""

from __future__ import annotations

import bisect
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from advisor.analysis import validation
from advisor.analysis.averages import median, most_common
from advisor.analysis.events import NO_LOADER, OptimizerStep as Update
from advisor.analysis.facts import typed
from advisor.analysis.loader_roles import train_loaders
from advisor.analysis.skipped_batches import used_batches
from advisor.analysis.step_series import OPTIMIZER, UPDATE, StepSeries, dominant_module

if TYPE_CHECKING:
    from advisor.analysis.events import EventLog, ForwardCall


class Fed(NamedTuple):
    """Batch that was trained on."""

    time: float
    items: float


def detect(log: EventLog, *, ended: bool = False) -> StepSeries | None:
    """Detect training steps; None before the first update.

    `ended`: the program came to its own end, so that its last gradients were taken up.
    """
    updates = _updates(log, ended=ended)
    if not updates:
        return None
    updates = _of_main_optimizer(updates)
    hooked = log.hooked()
    series = StepSeries(OPTIMIZER if log.updates else UPDATE)
    series.bounds = [update.end for update in updates if not update.optimizer]
    series.root = dominant_module(hooked)
    loaders = train_loaders(hooked)
    clusters = _passes_of_steps(log, updates)
    counts = [float(len(cluster)) for cluster in clusters[1:] if cluster]
    series.accumulation = median(counts) if counts else None
    fed, series.skips = _from_loaders(log, loaders.lead, loaders.also)
    middle = series.bounds[len(series.bounds) // 2]
    by_loader = len(series.bounds) < 4 or (bool(fed) and fed[-1].time >= middle)
    if loaders.lead is not None and by_loader:
        series.loader, series.beside = loaders.lead, loaders.beside
        series.source = f"items of the train loader's batches, at {series.kind}s"
        series.batch = most_common(
            [f.items for f in log.fetches if f.loader == loaders.lead and not f.ended_pass]
        )
    else:
        unit, fed = _from_forwards(log, series.root, clusters)
        series.count_forwards(unit, [each.items for each in fed])
        series.source += f", at {series.kind}s"
    series.finished_batches = bisect.bisect_right([each.time for each in fed], series.bounds[-1])
    series.whole_units = sum(each.items for each in fed[: series.finished_batches])
    series.units = _between(series.bounds, fed)
    batches = _between(series.bounds, [Fed(each.time, 1.0) for each in fed])
    series.batches_per_step = sum(batches) / len(batches) if batches else 1.0
    first_start_s = None
    if series.loader is not None:
        series.marks = _restarts(log, series)
        series.aside = validation.of_other_loaders(log, series)
        if not series.marks:
            first_start_s = _first_start(log, series)
    else:
        _set_aside_calls(log, series)
    series.set_clock(first_start_s)
    return series


def _updates(log: EventLog, *, ended: bool) -> list[Update]:
    """Steps of torch optimizers, or of custom updates.

    A program that steps by itself does so after each backward.
    """
    if log.updates:
        return log.updates
    passes = log.passes if ended else log.passes[:-1]
    return [Update(each.end, each.end, 0) for each in passes]


def _of_main_optimizer(updates: list[Update]) -> list[Update]:
    """Updates numbered 0 where they end a round, 1 where they are another optimizer's.

    A program may make its optimizer anew for each epoch or phase: one that first steps after
    another's last step takes its place. Of several in turn the last of those that step most ends
    each round.
    """
    spans: dict[int, list[int]] = {}
    for at, update in enumerate(updates):
        spans.setdefault(update.optimizer, [at, at])[1] = at
    place: dict[int, int] = {}
    last: dict[int, int] = {}
    for optimizer, (first, end) in spans.items():  # in the order of their first updates
        lead = next((lead for lead, until in last.items() if until < first), optimizer)
        place[optimizer], last[lead] = lead, end
    counts = Counter(place[update.optimizer] for update in updates)
    main = max(key for key, count in counts.items() if count >= max(counts.values()) - 1)
    return [Update(start, end, int(place[which] != main)) for start, end, which in updates]


def _between(bounds: list[float], moments: list[Fed]) -> list[float]:
    """Sum of the items in each interval."""
    sums = [0.0] * max(0, len(bounds) - 1)
    step = 0
    for time, value in moments:
        while step < len(sums) and time > bounds[step + 1]:
            step += 1
        if step == len(sums):
            break
        if time > bounds[step]:
            sums[step] += value
    return sums


def _restarts(log: EventLog, series: StepSeries) -> list[int]:
    """Steps that hold the first batch of a new pass.

    A loader that is made anew for each pass is known by its line.
    """
    loaders = {series.loader, *series.beside} - {None}
    site = log.loader(series.loader).site if series.loader is not None else None
    own = [f for f in log.fetches if f.loader in loaders and log.loader(f.loader).site == site]
    return _holding(series, [new.end for old, new in pairwise(own) if old.ended_pass])


def _first_start(log: EventLog, series: StepSeries) -> float | None:
    """Time of the loader's first start; sets the steps of a pass.

    None where it does not repeat: without workers, or with those that persist.
    """
    facts = log.loader(series.loader) if series.loader is not None else NO_LOADER
    per_step = sum(series.units) / len(series.units) if series.units else 0.0
    if (
        not facts.workers
        or typed(facts.arguments, "persistent_workers", bool)
        or not facts.pass_items
        or per_step <= 0
    ):
        return None
    series.cycle_steps = facts.pass_items / per_step
    return next(f.end - f.start for f in log.fetches if f.loader == series.loader)


def _holding(series: StepSeries, times: list[float]) -> list[int]:
    """Steps in which the times lie."""
    steps = {bisect.bisect_left(series.bounds, time) - 1 for time in times}
    return sorted(step for step in steps if 0 <= step < series.steps)


def _set_aside_calls(log: EventLog, series: StepSeries) -> None:
    """Set validation aside; rollouts begin a cycle of steps."""
    found, are_rollouts = validation.of_calls(log, series.root)
    if are_rollouts:
        series.marks = _holding(series, [each.start for each in found])
    else:
        series.aside = found


# --- batches that were trained on ----------------------------------------------------------


def _from_loaders(log: EventLog, lead: int | None, also: set[int]) -> tuple[list[Fed], bool]:
    """Trained batches, and whether others were skipped."""
    own = {lead, *also}
    mine = [f for f in log.fetches if f.loader in own and not f.ended_pass]
    if lead is not None and log.read_aside(lead):  # the skipped ones are unknown
        many = max(1, round(len(mine) / max(1, len(log.passes))))
        turns = (each.end for each in log.passes for _ in range(many))
        return [Fed(end, fetch.items) for end, fetch in zip(turns, mine, strict=False)], False
    hooked, watched = log.hooked(), mine
    if hooked is not log and len(hooked.passes) == len(log.passes):
        until = log.counting_since or 0.0
        watched = [fetch for fetch in mine if fetch.end <= until]
    passes_ended = sum(fetch.loader in own and fetch.ended_pass for fetch in log.fetches)
    work = [each.start for each in log.passes]
    calls = [c for c in log.calls if c.graded and log.module(c.module).parameters]
    used = used_batches(watched, work, calls, passes_ended)
    skips = len(used) < len(watched)
    return [Fed(f.end, f.items) for f in (*used, *mine[len(watched) :])], skips


# --- without a loader ----------------------------------------------------------------------


def _passes_of_steps(log: EventLog, updates: list[Update]) -> list[list[int]]:
    """Indices of backwards applied by each step.

    Those of another optimizer's step in between (two networks trained on the same batch) are not
    its own, and a closure that is called again and again goes through one batch.
    """
    starts = [each.start for each in log.passes]
    found: list[list[int]] = []
    cluster: list[int] = []
    position = 0
    for update in updates:
        before = bisect.bisect_left(starts, update.start)
        after = bisect.bisect_left(starts, update.end)
        fresh = [*range(position, before), *range(max(position, before), after)[-1:]]
        cluster = fresh or cluster
        position = max(position, after)
        if not update.optimizer:
            found.append(cluster)
            cluster = []
    return found


def _from_forwards(
    log: EventLog, root: int | None, clusters: list[list[int]]
) -> tuple[str, list[Fed]]:
    """Unit and trained batches, by forwards with backwards.

    Without any forward each pass is a step of an unknown number of samples.
    """
    heavy = [c for c in log.calls if log.module(c.module).parameters] or log.calls
    mine: list[ForwardCall] = [call for call in heavy if call.graded] or heavy
    passes = log.passes
    ends = [call.end for call in mine]
    fed: list[Fed] = []
    for index in (index for cluster in clusters for index in cluster):
        each = passes[index]
        since = passes[index - 1].end if index else float("-inf")
        inside = mine[bisect.bisect_left(ends, since) : bisect.bisect_right(ends, each.start)]
        own = [call for call in inside if call.module == root] or inside
        if own:
            fed.append(Fed(each.end, own[-1].items))
    fed = fed or [Fed(call.end, call.items) for call in mine if call.module == root]
    if fed:
        return "sample", fed
    return "step", [Fed(passes[cluster[-1]].end, 1.0) for cluster in clusters if cluster]
