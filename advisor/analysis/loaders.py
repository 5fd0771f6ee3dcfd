"""DataLoaders that feed the steps, and the batches worked on."""

import bisect
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

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
"""Least share of a loader's batches drawn together with those of one beside it.

Judgement: smaller adds a loader that is drawn from now and then, larger misses one beside it that
ends early."""
SKIPPED_SHARE = 0.02
"""Share of items without a forward up to which they were loaded ahead.

Judgement: smaller takes a queue for skipped batches, larger counts a loop that skips a few as all
done."""


class TrainLoaders(NamedTuple):
    """Loaders whose batches a training is made of."""

    lead: int
    """The one whose samples are those of a step."""
    in_turn: set[int]
    """Loaders whose items add up, `lead` among them."""
    all: set[int]
    """These, and loaders that have a batch beside one of theirs."""


def train_loaders(log: EventLog) -> TrainLoaders | None:
    """Loaders that feed the updates; None if none does.

    The train loader had a batch for most backwards. Loaders in turn have theirs for others (two
    data sets that alternate): their items add up. Loaders beside have one for the same backwards
    (labelled and unlabelled data): the samples of a step are those of the train loader alone. A
    validation's batches lie between two backwards, too, but all of them between the same two. So
    a loader needs a backward for a share of its own batches.
    """
    turns = turns_of(log)
    lead = max(turns, key=lambda loader: len(turns[loader]), default=None)
    if lead is None:
        return None
    batches = {loader: len(log.batches({loader})) for loader in turns}
    fed = len(turns[lead]) / len(log.updates or log.passes)
    if fed < FED_SHARE or max(fed, len(turns[lead]) / batches[lead]) < OWN_SHARE:
        return None
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
    return TrainLoaders(lead, {lead, *(in_turn - beside)}, in_turn | beside)


def turns_of(log: EventLog) -> dict[int, set[int]]:
    """Numbers of the passes that each loader had a batch for."""
    work = [backward.end for backward in log.passes]
    turns: dict[int, set[int]] = {}
    for fetch in log.fetches:
        turn = bisect.bisect_left(work, fetch.end)
        if not fetch.ended_pass and turn < len(work):
            turns.setdefault(fetch.loader, set()).add(turn)
    return turns


class BatchRun(NamedTuple):
    """Batches that were loaded in a row, and the forwards that follow them."""

    batches: list[BatchFetch]
    forwarded: float
    """Rows of these forwards."""

    @property
    def loaded(self) -> float:
        """Items of its batches."""
        return sum(batch.items for batch in self.batches)


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
    """
    if not calls or not batches:
        return [batch.items for batch in batches]
    runs = _runs(batches, work, calls)
    rows_per_item = _rows_per_item(runs)
    if bisect.bisect_left(work, batches[-1].end) == len(work):
        # not worked on yet, if no more lie ready than ever did before; the others were lost
        usual = max((len(run.batches) for run in runs[:-1]), default=len(batches))
        ready = sum(batch.items for batch in runs[-1].batches[-usual:])
        runs[-1] = runs[-1]._replace(forwarded=rows_per_item * ready)
    if _all_but_those_ahead(log, runs, rows_per_item):
        return [batch.items for batch in batches]
    worked: list[float] = []
    for run in runs:
        taken = max(run.batches[-1].items, min(run.loaded, run.forwarded / rows_per_item))
        share = taken / run.loaded if run.loaded else 1.0
        worked += [batch.items * share for batch in run.batches]
    return worked


def _runs(
    batches: Sequence[BatchFetch], work: Sequence[float], calls: Sequence[ForwardCall]
) -> list[BatchRun]:
    """The batches, cut wherever work lies between two of them."""
    in_a_row = [
        list(run) for _, run in groupby(batches, lambda b: bisect.bisect_left(work, b.end))
    ]
    starts = [call.start for call in calls]
    edges = [bisect.bisect_left(starts, run[0].end) for run in in_a_row] + [len(calls)]
    rows = [sum(call.items for call in calls[low:high]) for low, high in pairwise(edges)]
    return list(map(BatchRun, in_a_row, rows))


def _rows_per_item(runs: Sequence[BatchRun]) -> float:
    """Rows of forwards for one item, at least 1: a program may cut each item into several.

    A single batch between two pieces of work tells it.
    """
    ratios = [
        round(run.forwarded / run.loaded, 2)
        for run in runs
        if len(run.batches) == 1 and run.loaded
    ]
    return max(1.0, most_common(ratios) or 1.0)


def _all_but_those_ahead(
    log: EventLog, runs: Sequence[BatchRun], rows_per_item: float
) -> bool:
    """True if forwards took all items but as many as workers load ahead.

    Told by the later half of the runs, as the workers' queue is full by then.
    """
    later = runs[len(runs) // 2 :]
    given = sum(run.loaded for run in later)
    taken = sum(run.forwarded for run in later) / rows_per_item
    batches = [batch for run in runs for batch in run.batches]
    loaders = {batch.loader for batch in batches}
    passes_ended = sum(f.loader in loaders and f.ended_pass for f in log.fetches)
    ahead = (2 + passes_ended) * max(batch.items for batch in batches)
    return given - taken <= max(ahead, SKIPPED_SHARE * given)
