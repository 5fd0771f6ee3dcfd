"""Work facts of one process, from its event log."""

import bisect
from itertools import accumulate, pairwise
from statistics import median

from advisor.analysis.events import EventLog
from advisor.analysis.loaders import turns_of
from advisor.analysis.step_series import StepSeries
from advisor.model import TRAINING_STEPS, WorkFacts

PASSES = 8
"""Whole passes whose items are told.

Judgement: their median is compared, which one odd pass among few moves. More only lengthen the
record."""
GENERATIONS = 32
"""First generations whose calls are told.

Judgement: so many prompts of one batch are compared with a larger one. Fewer miss the longest of
them, more only lengthen the record."""
FEWEST_BATCHES = 8
"""Batches from which the share that is left out is told; judgement."""


def work_facts(log: EventLog, series: StepSeries) -> WorkFacts:
    """Facts of the loader that feeds the steps, and of the updates."""
    facts = log.loader(series.loader)
    trains = series.kind in TRAINING_STEPS
    return WorkFacts(
        loader=facts.work,
        pass_items=whole_passes(log, series.loader),
        update_samples=samples_of_an_update(series) if trains else None,
        updates_seen=series.steps if trains else None,
        update_rows=rows_of_an_update(log, series) if trains else None,
        untrained=untrained_batches(log, series) if trains else None,
        generations=tuple(map(float, series.generation_calls[:GENERATIONS])),
    )


def whole_passes(log: EventLog, loader: int | None) -> tuple[float, ...]:
    """Items of each pass that began and ended in the log."""
    if loader is None:
        return ()
    site = log.loader(loader).site  # also of one made anew for each pass
    same_line = {number for number, facts in log.loaders.items() if facts.site == site}
    fetches = [fetch for fetch in log.fetches if fetch.loader in same_line]
    ends = [-1, *(at for at, fetch in enumerate(fetches) if fetch.ended_pass)]
    sums = [sum(f.items for f in fetches[a + 1 : b]) for a, b in pairwise(ends)]
    return tuple(filter(None, sums))[:PASSES]


def samples_of_an_update(series: StepSeries) -> float | None:
    """Samples of one forward and backward, times those of an update.

    The last update of a pass may have fewer: so the commonest batch counts, not the mean.
    """
    if series.unit != "sample" or not series.batch:
        return None
    return series.batch * (series.accumulation or series.batches_per_step)


def rows_of_an_update(log: EventLog, series: StepSeries) -> float | None:
    """Rows of the network's calls with gradients, in most updates that were wholly recorded."""
    calls = [call for call in log.calls if call.module == series.root and call.graded]
    ends, until = [call.end for call in calls], [0.0, *accumulate(c.items for c in calls)]
    spans = log.hooked_spans()
    sums = [
        until[bisect.bisect_right(ends, ended)] - until[bisect.bisect_right(ends, begun)]
        for begun, ended in pairwise(series.bounds)
        if any(span.start <= begun and ended <= span.end for span in spans)
    ]
    return median(sums) if sums and median(sums) > 0 else None


def untrained_batches(log: EventLog, series: StepSeries) -> float | None:
    """Share of the batches of the train loader that no backward pass of their own followed.

    A program leaves out a batch whose loss is not finite. What was loaded last is yet to come.
    """
    hooked = log.hooked()
    if series.loader is None or log.loader(series.loader).other_thread:
        return None
    last = hooked.passes[-1].start if hooked.passes else 0.0
    batches = sum(batch.end <= last for batch in hooked.batches({series.loader}))
    turns = len(turns_of(hooked).get(series.loader, ()))
    return 1 - turns / batches if batches >= FEWEST_BATCHES else None
