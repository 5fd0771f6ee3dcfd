"""DataLoaders that feed the steps, and the batches worked on."""

import bisect
from collections.abc import Sequence
from itertools import groupby, pairwise

from advisor.analysis.events import BatchFetch, EventLog, ForwardCall
from advisor.analysis.step_series import most_common

# By judgement: shares and not all, as the first and last rounds of a loop are unlike the others.
OWN_SHARE = 0.5
"""A train loader is trained on with so many of its batches."""
FED_SHARE = 0.02
"""Least share of updates that a train loader's batches come in.

A training that draws its own batches may validate with a loader. Counted by that loader's
batches it looked twelve times slower than it was.
"""
BESIDE_SHARE = 0.5
"""Least share of a loader's batches drawn together with those of one beside it."""
SKIPPED_SHARE = 0.02
"""Fewer items without a forward are of batches loaded ahead."""


def train_loaders(log: EventLog) -> tuple[int | None, set[int], set[int]]:
    """Train loader, those in turn with it, and all with those beside.

    The train loader had a batch for most backwards. Loaders in turn have theirs for others (two
    data sets that alternate): their items add up. Loaders beside have one for the same backwards
    (labelled and unlabelled data): the samples of a step are those of the train loader alone. A
    validation's batches lie between two backwards, too, but all of them between the same two. So
    a loader needs a backward for a share of its own batches.
    """
    turns = _turns(log)
    lead = max(turns, key=lambda loader: len(turns[loader]), default=None)
    if lead is None:
        return None, set(), set()
    batches = {loader: len(log.batches({loader})) for loader in turns}
    fed = len(turns[lead]) / len(log.updates or log.passes)
    if fed < FED_SHARE or max(fed, len(turns[lead]) / batches[lead]) < OWN_SHARE:
        return None, set(), set()
    together = BESIDE_SHARE * len(turns[lead])
    beside = {
        loader for loader, passes in turns.items() if len(passes & turns[lead]) >= together
    }
    in_turn = {
        loader
        for loader, passes in turns.items()
        if len(passes) >= OWN_SHARE * batches[loader]
        and len(passes & turns[lead]) < len(passes) / 2
    }
    return lead, {lead, *(in_turn - beside)}, in_turn | beside


def _turns(log: EventLog) -> dict[int, set[int]]:
    """Numbers of the passes that each loader had a batch for."""
    work = [backward.end for backward in log.passes]
    turns: dict[int, set[int]] = {}
    for fetch in log.fetches:
        turn = bisect.bisect_left(work, fetch.end)
        if not fetch.ended_pass and turn < len(work):
            turns.setdefault(fetch.loader, set()).add(turn)
    return turns


def worked_items(
    log: EventLog,
    batches: Sequence[BatchFetch],
    work: Sequence[float],
    calls: Sequence[ForwardCall],
) -> list[float]:
    """Items of each batch that went through a forward.

    `work`: times of work on batches. Batches loaded in a row share the items of the
    forwards that follow; where those took all but a few, the rest were loaded ahead.
    Without a single forward nothing tells which batches were worked on, and all count.

    Rows of a forward are no items: a program may cut each item into several. The ratio of both
    where a single batch lies between two pieces of work turns rows back into items.
    """
    if not calls:
        return [batch.items for batch in batches]
    runs = [
        list(run) for _, run in groupby(batches, lambda b: bisect.bisect_left(work, b.end))
    ]
    starts = [call.start for call in calls]
    edges = [bisect.bisect_left(starts, run[0].end) for run in runs] + [len(calls)]
    loaded = [sum(batch.items for batch in run) for run in runs]
    forwarded = [
        sum(call.items for call in calls[low:high]) for low, high in pairwise(edges)
    ]
    ratios = [
        round(took / gave, 2)
        for run, took, gave in zip(runs, forwarded, loaded, strict=True)
        if len(run) == 1 and gave
    ]
    rows_per_item = max(1.0, most_common(ratios) or 1.0)
    if batches and bisect.bisect_left(work, batches[-1].end) == len(work):
        # not worked on yet, if no more lie ready than ever did before; the others were lost
        usual = max((len(run) for run in runs[:-1]), default=len(batches))
        forwarded[-1] = rows_per_item * sum(batch.items for batch in runs[-1][-usual:])
    half = len(runs) // 2  # a queue is full by then
    given, taken = sum(loaded[half:]), sum(forwarded[half:]) / rows_per_item
    numbers = {batch.loader for batch in batches}
    passes_ended = sum(f.loader in numbers and f.ended_pass for f in log.fetches)
    ahead = (2 + passes_ended) * max((batch.items for batch in batches), default=0.0)
    if given - taken <= max(ahead, SKIPPED_SHARE * given):
        return [batch.items for batch in batches]
    worked: list[float] = []
    for run, took, gave in zip(runs, forwarded, loaded, strict=True):
        share = max(run[-1].items, min(gave, took / rows_per_item)) / gave if gave else 1.0
        worked += [batch.items * share for batch in run]
    return worked
