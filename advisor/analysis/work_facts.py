"""Work facts of one process, from its event log."""

from itertools import pairwise

from advisor.analysis.events import EventLog
from advisor.analysis.step_series import StepSeries
from advisor.model import TRAINING_STEPS, WorkFacts

PASSES = 8
"""Whole passes whose items are told."""


def work_facts(log: EventLog, series: StepSeries) -> WorkFacts:
    """Facts of the loader that feeds the steps, and of the updates."""
    facts = log.loader(series.loader)
    trains = series.kind in TRAINING_STEPS
    return WorkFacts(
        loader=facts.work,
        pass_items=whole_passes(log, series.loader),
        update_samples=samples_of_an_update(series) if trains else None,
        updates_seen=series.steps if trains else None,
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
