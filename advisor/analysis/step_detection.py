"""Step detection: kind of steps and units finished.

No workload, framework or model is known here, only four shapes of loop:

    optimizer step   training, or training step where no optimizer of torch's steps
    loader batch     inference over a DataLoader, a few forwards a batch
    root forward     an iterative sampler (many forwards a batch), or no loader at all
    generation       forwards that together write one batch of sequences, without a loader

Without a loader only a sign in the calls tells what is finished: a timestep that runs one way
and jumps back, another network in between, or a prompt that grows. Without a sign the unit is
the row of a forward, and is called so: nothing shows that it is a finished item. A generation
that waits for its longest row has more rows in a larger batch, and may finish fewer prompts.

Everything here is a function of the whole log. The parent calls it again each time it looks at
a running program, and once more at its end. No state is carried from one look to the next, so a
guess that few events suggested is gone as soon as more of them refute it.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from advisor import numbers
from advisor.analysis import generations, training_steps
from advisor.analysis.events import EventLog, ForwardCall, Span
from advisor.analysis.loaders import worked_items
from advisor.analysis.step_series import (
    FORWARD,
    GENERATION,
    LOADER,
    StepSeries,
    calls_of_networks,
    dominant_module,
    most_common,
)
from advisor.model import SAMPLER_FORWARDS, MeasurePlan
from advisor.probe.recorder import LENGTH, ROW

CYCLE_PATIENCE_S = 60.0
"""Longest wait for a first sign of items where a network's output has its input's shape.

A number that runs one way is a sign: then the first item's end is waited for, however long
that takes within the trial's limits. Judgement: too short takes the forwards of a sampler for
its items, and what is no sampler waits in each trial.
"""
STARTING_S = 300.0
"""Time that a recommended run-limit leaves for the program's start, beside its items.

Judgement: too short names a limit that a large model's start uses up; a long one costs nothing
where the program ends before it."""
FEWEST_ITEMS = 2
"""Items that tell a rate, and calls of a network from which it may mark them."""
MARKED_SHARE = 0.8
"""Share of those calls that a call of the dominant network has to follow. Judgement."""

ROWS = "rows of forwards, none of which was seen to finish an item"
SLICES = "rows of an array, slice by slice"

# By judgement: shares and not all, as a sampler may repeat, skip or correct some of its steps.
SHORTEST = 4
"""Fewest forwards of a cycle."""
ONE_WAY = 0.8
"""Least share of a number's moves that go the same way, for it to be a timestep."""
MOVING = 0.25
"""Least share of calls that move the number: guidance repeats timesteps.

Judgement: four calls with each timestep are more than the two of guidance. A larger share misses
such samplers, a smaller one takes a number that hardly moves."""
JUMP = 0.5
"""A move back over this share of all values seen begins a new item.

Judgement: smaller takes a sampler that steps back a little for a new item. Larger misses items
whose timesteps begin at various places."""


class _Group(NamedTuple):
    """One batch with its forwards."""

    items: float
    calls: list[ForwardCall]
    finished: bool

    @property
    def joint(self) -> float:
        """Items that go through one forward together.

        Not the batch itself, which a program may split over several forwards. Nor the rows of a
        forward, which are more than the batch where guidance doubles it or an image is cut into
        patches. The smaller of both is right in either case.
        """
        batch = most_common([call.items for call in self.calls])
        return min(batch or self.items, self.items) or 1.0


def detect_steps(log: EventLog, plan: MeasurePlan) -> StepSeries | None:
    """Series of steps in the log; None before there is a sign of a loop.

    A series without a step, or with `missing` or `undecided` set, is a kind that is known and
    has no rate yet. `plan` only adds what this log cannot show: forwards of one item, where
    another run of the same program has counted them.
    """
    if log.updates or log.passes:
        return training_steps.detect(log)
    loader, root = _busiest_loader(log), dominant_module(log.hooked())
    calls = [call for call in log.calls if call.module == root]
    if loader is not None:
        series = _with_loader(log, loader, root, calls, plan)
    elif root is not None:
        series = _without_loader(log, root, calls, plan)
    else:
        return None
    if log.validations is None:  # inference passes over its data once
        series.set_clock(cycles=series.kind != LOADER)
    else:
        series.aside = _pauses(log, log.validations)
        series.marks = [mark for mark in series.marks if mark < series.steps]
        series.set_clock(training_steps.first_start(log, series))
    return series


def measured_part(log: EventLog, plan: MeasurePlan) -> EventLog:
    """The log, or only its validations where the plan measures those."""
    if not plan.validation or log.trains is None:
        return log
    training = training_steps.detect(log)
    spans = training.aside if training else []
    part = log.inside(spans)
    return replace(part, validations=spans, updates=[], backwards=[], gradients=[])


def _pauses(log: EventLog, validations: list[Span]) -> list[Span]:
    """Stretches from a validation's last event to the next."""
    ends = [
        log.inside([validation]).last_time() or validation.end for validation in validations
    ]
    return [
        Span(end, after.start) for end, after in zip(ends, validations[1:], strict=False)
    ]


def _busiest_loader(log: EventLog) -> int | None:
    """Loader whose batches took most time, each until anything is fetched next."""
    busy_s: dict[int, float] = {}
    last = log.last_time() or 0.0
    for fetch, until in zip(
        log.fetches, [*(f.start for f in log.fetches[1:]), last], strict=False
    ):
        if not fetch.ended_pass:
            busy_s[fetch.loader] = busy_s.get(fetch.loader, 0.0) + until - fetch.start
    return max(busy_s, key=busy_s.__getitem__, default=None)


def _with_loader(
    log: EventLog,
    loader: int,
    root: int | None,
    calls: list[ForwardCall],
    plan: MeasurePlan,
) -> StepSeries:
    """Find an iterative sampler, else count batches."""
    groups = list(_forwards_by_batch(log.hooked(), loader, calls))
    whole = [len(group.calls) for group in groups if group.finished and group.calls]
    many = (
        median(whole) if whole else max((len(group.calls) for group in groups), default=0)
    )
    if root is not None and many >= SAMPLER_FORWARDS:
        series = _sampler(root, groups, plan)
    else:
        series = _loader_batches(log, loader)
        series.forwards_per_unit = float(median(whole)) if whole else None
        if log.loader(loader).guessed:
            series.count_steps()
    series.loader, series.loaders, series.root = loader, {loader}, root
    return series


def _forwards_by_batch(
    log: EventLog, loader: int, calls: list[ForwardCall]
) -> Iterator[_Group]:
    starts = [call.start for call in calls]
    mine = [fetch for fetch in log.fetches if fetch.loader == loader]
    for position, fetch in enumerate(mine):
        if fetch.ended_pass:
            continue
        later = position + 1 < len(mine)
        low = bisect.bisect_left(starts, fetch.end)
        high = (
            bisect.bisect_left(starts, mine[position + 1].start) if later else len(starts)
        )
        yield _Group(fetch.items, calls[low:high], later or log.ended)


def _loader_batches(log: EventLog, loader: int) -> StepSeries:
    """Step series of batches, each lasting until the next is asked for."""
    series = StepSeries(LOADER, "items of the loader's batches", counted="loader batch")
    if not log.calls:
        series.source = "items of the loader's batches, for which no module was called"
        series.counted = "loaded sample"
    items = _items_by_end(log.hooked(), loader)
    fetches = [fetch for fetch in log.fetches if fetch.loader == loader]
    series.bounds = [fetches[0].start]
    for fetch, after in pairwise(fetches):
        if fetch.ended_pass:  # the pause before a pass belongs to its first batch
            series.marks.append(len(series.units))
        else:
            _finish(series, after.start, items.get(fetch.end, fetch.items))
    last, end = fetches[-1], log.last_time() or 0.0
    if log.ended and not last.ended_pass and end > series.bounds[-1]:
        _finish(series, end, items.get(last.end, last.items))
    batches = log.batches({loader})
    series.batch = most_common([fetch.items for fetch in batches])
    series.skips = any(items.get(fetch.end, fetch.items) < fetch.items for fetch in batches)
    return series


def _finish(series: StepSeries, end: float, units: float) -> None:
    series.bounds.append(end)
    series.units.append(units)
    series.finished_batches += units > 0
    series.whole_units += units


def _items_by_end(log: EventLog, loader: int) -> dict[float, float]:
    """Items that went through a forward, by the end of their fetch."""
    batches = log.batches({loader})
    items = worked_items(log, batches, [call.start for call in log.calls], log.calls)
    return {batch.end: some for batch, some in zip(batches, items, strict=True)}


def _sampler(root: int, groups: list[_Group], plan: MeasurePlan) -> StepSeries:
    """Step series of a sampler's forwards; only the last group may be unfinished.

    An item takes as many forwards as it has timesteps, often minutes. So the steps are the
    forwards, and each one finishes its part of an item: the program can be stopped within one.
    How many forwards make an item is the median over finished groups. Before the first of them
    is done only the plan can tell, and else there is no rate: a part of an unknown whole is not
    a number of items.
    """
    groups = [group for group in groups if group.calls]
    done = [group for group in groups if group.finished and group.items > 0]
    series = StepSeries(FORWARD, root=root, iterative=True, counted="sampler item")
    series.batch = most_common([group.items for group in groups])
    series.finished_batches = len(done)
    series.whole_units = sum(group.items for group in done)
    per_item = [len(group.calls) * group.joint / group.items for group in done]
    series.forwards_per_unit = median(per_item) if per_item else plan.forwards_per_unit
    for group in groups:
        per_forward = group.items / len(group.calls)
        if not group.finished:
            per_forward = group.joint / (series.forwards_per_unit or 1.0)
        if series.bounds:
            series.marks.append(len(series.units))
        series.units += [per_forward] * (len(group.calls) - (not series.bounds))
        series.bounds += [call.end for call in group.calls]
    if series.forwards_per_unit and groups:
        last = groups[-1]
        series.cycle_steps = series.forwards_per_unit * last.items / last.joint
    series.batches_per_step = 1.0 / (series.cycle_steps or 1.0)
    series.source = "root forwards / forwards per unit"
    return series


def _without_loader(
    log: EventLog, root: int, calls: list[ForwardCall], plan: MeasurePlan
) -> StepSeries:
    """Find generations or an iterative sampler, else count rows of forwards.

    The surest sign comes first: a library's own `generate`, then lengths that grow as a
    generation's do, then cycles. A first item of a sampler may take minutes and shows no cycle
    until it is done. So a network whose output has its input's shape, as a denoiser's has, is
    given time before its rows are counted: once they are, a trial may be stopped by that count.
    """
    if log.generated:
        series = _generation_series(root, log.generated[0].start)
        for generation in log.generated:
            _finish(series, generation.end, generation.prompts)
        series.batch = most_common([generation.prompts for generation in log.generated])
        series.generation_calls = calls_of_generations(log, calls)
        return series
    begun = generations.starts(log.numbers.get(root, []))
    if begun is not None:
        return _generations(log, root, calls, begun)
    positions = [index for index, call in enumerate(log.calls) if call.module == root]
    cycles = cycle_starts(log, root, positions)
    forwards_planned = plan.forwards_per_unit
    if not cycles and not forwards_planned and not is_sampler(log, root):
        likely = cycles is not None and log.module(root).same_shape
        watched_s = calls[-1].end - calls[0].start
        if not likely or (watched_s > CYCLE_PATIENCE_S and not log.ended):
            series = _forwards(root, _items(log, calls), calls)
            if are_slices(log, root, calls):
                series.source, series.counted = SLICES, "slice"
            return series
    networks = calls_of_networks(log)
    beside = [
        call.items
        for module, calls_of_one in networks.items()
        if module != root
        for call in calls_of_one
    ]
    # guidance doubles the batch of the dominant network only
    items = min([most_common([call.items for call in calls]) or 1.0, *beside])
    spans = pairwise([0, *(cycles or ()), len(calls)])
    groups = [_Group(items, calls[a:b], log.ended or b < len(calls)) for a, b in spans]
    series = _sampler(root, groups, plan)
    if not series.forwards_per_unit:
        series.missing = unfinished(
            item_s(log, root, watched_s=calls[-1].end - calls[0].start)
        )
    return series


def unfinished(item_s: float | None) -> str:
    """Sentence on a first item that is not done, and the limit that would hold it."""
    if item_s is None:
        return (
            "no item was finished: raise run-limit in gpu-advisor.toml to the time of two"
        )
    limit = numbers.whole_minutes(FEWEST_ITEMS * item_s + STARTING_S)
    return (
        f"no item was finished: one takes about {numbers.duration(item_s)}; "
        f'run-limit = "{limit}" in gpu-advisor.toml would hold one'
    )


def item_s(log: EventLog, module: int, *, watched_s: float) -> float | None:
    """Guess of the time of an item, by how far its timestep has come; None without one.

    Timesteps and noise levels fall to about 0; times of a flow rise from 0 to 1.
    """
    for values in _arguments(log, module):
        first, latest = values[0], values[-1]
        last = 0.0 if 0 <= latest < first else 1.0
        if first != latest and min(first, last) <= latest <= max(first, last):
            return watched_s * (last - first) / (latest - first)
    return None


def calls_of_generations(log: EventLog, calls: Sequence[ForwardCall]) -> list[int]:
    """Calls of the network in each `generate` of a library's, as far as they were recorded."""
    hooked, starts = log.hooked_spans(), [call.start for call in calls]
    return [
        bisect.bisect_right(starts, generation.end)
        - bisect.bisect_left(starts, generation.start)
        for generation in log.generated
        if any(
            span.start <= generation.start and generation.end <= span.end for span in hooked
        )
    ]


def _generation_series(root: int, start: float) -> StepSeries:
    series = StepSeries(GENERATION, "sequences of generations", root=root)
    series.counted, series.bounds = "generation", [start]
    return series


def _generations(
    log: EventLog, root: int, calls: list[ForwardCall], begun: list[int]
) -> StepSeries:
    """Step series of finished generations; the last one may be under way."""
    series = _generation_series(root, calls[0].start)
    edges = [*begun, len(calls)] if log.ended else begun
    sequences = [generations.sequences_of(calls[a:b]) for a, b in pairwise(edges) if a < b]
    for (_, after), many in zip(pairwise(edges), sequences, strict=False):
        _finish(series, calls[after - 1].end, many)
    series.batch = most_common(sequences or [calls[0].items])
    series.generation_calls = [after - before for before, after in pairwise(edges)]
    if not series.steps:
        series.missing = unfinished(None)
    return series


def _items(log: EventLog, calls: list[ForwardCall]) -> list[ForwardCall]:
    """Calls that distinguish items: of the first of networks in turn."""
    starts = [call.start for call in calls]
    for others in calls_of_networks(log).values():  # the first is given the data
        if not FEWEST_ITEMS <= len(others) <= len(calls):
            continue
        edges = [bisect.bisect_left(starts, call.start) for call in others]
        followed = sum(later > edge for edge, later in pairwise(edges))
        if followed >= MARKED_SHARE * (len(others) - 1):
            return others
    return calls


def _forwards(root: int, items: list[ForwardCall], calls: list[ForwardCall]) -> StepSeries:
    series = StepSeries(FORWARD, ROWS, root=root, counted="row of a forward")
    series.batch = most_common([call.items for call in items])
    series.bounds = [call.end for call in items]
    series.units = [call.items for call in items[1:]]
    series.whole_units = sum(call.items for call in items)
    series.finished_batches = len(items)
    series.forwards_per_unit = 1.0
    if items is not calls:
        together = min(
            most_common([call.items for call in network_calls]) or 1.0
            for network_calls in (items, calls)
        )
        series.forwards_per_unit = round(len(calls) * together / series.whole_units, 1)
    return series


def cycle_starts(log: EventLog, module: int, calls: list[int]) -> list[int] | None:
    """Positions in `calls` where new items begin; None without a sign.

    The signs: an argument that runs one way and jumps back (a timestep), or another network
    called in between (a decoder). Empty: no number jumped back yet.
    """
    signs = [
        positions
        for positions in map(jumps, _arguments(log, module))
        if positions is not None
    ]
    if any(signs):
        return next(filter(None, signs))
    runs = _runs(log, calls)
    return [] if runs is None and signs else runs


def jumps(values: Sequence[float]) -> list[int] | None:
    """Positions where `values` that run one way jump back; None where they are no timestep.

    Guidance calls the network several times with one timestep, so that not every call has to
    move the number. Most moves must go one way, and only one back over half of all values begins
    an item. An empty list: they run one way and did not jump yet.
    """
    if len(values) < 2 * SHORTEST:
        return None
    steps = [b - a for a, b in pairwise(values)]
    moves = [step for step in steps if step]
    up = sum(step > 0 for step in moves)
    way = 1 if 2 * up >= len(moves) else -1
    along = max(up, len(moves) - up)
    if len(moves) < max(SHORTEST, MOVING * len(steps)) or along < ONE_WAY * len(moves):
        return None
    reach = JUMP * (max(values) - min(values))
    jumped = [position for position, step in enumerate(steps, 1) if step * way < -reach]
    lengths = [b - a for a, b in pairwise([0, *jumped])]
    return None if lengths and median(lengths) < SHORTEST else jumped


def are_slices(log: EventLog, module: int, calls: Sequence[ForwardCall]) -> bool:
    """True if each call goes on where the one before ended, in one array of the program's.

    Each row is then given once, so that a row of the forward is an item.
    """
    given = log.numbers.get(module, [])
    for name in given[0] if given else ():
        if not name.endswith(ROW) or any(name not in call for call in given):
            continue
        moves = [after[name] - before[name] for before, after in pairwise(given)]
        follows = sum(move == call.items for move, call in zip(moves, calls, strict=False))
        if follows >= max(SHORTEST, ONE_WAY * len(moves)):
            return True
    return False


def is_sampler(log: EventLog, module: int) -> bool:
    """True if a number of every call runs one way, as a timestep does.

    Counters of calls, and lengths of sorted data, are whole numbers that run one way, too. They
    are timesteps only where the output has the shape of the input, as a denoiser's.
    """
    for values in _arguments(log, module):
        moves = [b - a for a, b in pairwise(values) if a != b]
        up, down = sum(move > 0 for move in moves), sum(move < 0 for move in moves)
        one_way = len(moves) >= 2 and max(up, down) >= ONE_WAY * len(moves)
        whole = all(move.is_integer() for move in moves)
        if one_way and (not whole or log.module(module).same_shape):
            return True
    return False


def _arguments(log: EventLog, module: int) -> list[list[float]]:
    """Numeric arguments of every call, one list each; not those that tell a tensor's length.

    An argument that some calls lack tells nothing: its values cannot be put beside the calls.
    """
    calls = log.numbers.get(module, [])
    names = [
        name
        for name in (calls[0] if calls else ())
        if not name.endswith((LENGTH, ROW))
        and all(name in call for call in calls)
        and not all(_is_length(call, name) for call in calls)
    ]
    return [[call[name] for call in calls] for name in names]


def _is_length(call: Mapping[str, float], name: str) -> bool:
    return any(call[name] == call[other] for other in call if other.endswith(LENGTH))


def _runs(log: EventLog, calls: list[int]) -> list[int] | None:
    """Positions after which another network with parameters was called."""
    begun = []
    for position, (before, call) in enumerate(pairwise(calls), 1):
        between = log.calls[before + 1 : call]
        if any(log.module(entry.module).parameters for entry in between):
            begun.append(position)
    lengths = [b - a for a, b in pairwise([0, *begun])]
    return begun if len(begun) >= 2 and median(lengths) >= SHORTEST else None
