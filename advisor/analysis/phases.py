"""Phases of a whole run: training, validation, saving, and what lies between epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.analysis import spans
from advisor.analysis.events import Span
from advisor.analysis.step_series import TRAINING
from advisor.model import RunPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.events import BatchFetch, EventLog
    from advisor.analysis.step_series import StepSeries


def phases(log: EventLog, series: StepSeries) -> tuple[RunPhase, ...]:
    """Phases from the first finished step to the last event, by the host's clock.

    Where two kinds overlap, the first of the list below has the time.
    """
    if not series.steps:
        return ()
    start = series.bounds[0]
    end = max([log.last_time() or start, *(save.end for save in log.saves[-1:])])
    own = [f for f in log.fetches if f.loader in {series.loader, *series.beside}]
    kinds = {
        "saving": log.saves,
        "validation": _validation(log, series, own),
        "between epochs": _between(own),
        "ending": [Span(own[-1].start, end)] if own and own[-1].ended_pass else [],
    }
    left = [Span(start, end)]
    found = []
    for name, stretches in kinds.items():
        merged = spans.within(spans.merged(stretches), [Span(start, end)])
        seconds, left = spans.split(left, merged)
        found.append(RunPhase(name=name, seconds=seconds, times=len(merged)))
    work = "training" if series.kind in TRAINING else "inference"
    return (
        RunPhase(name=work, seconds=spans.seconds(left), times=series.steps),
        *(phase for phase in found if phase.seconds > 0),
    )


def _validation(log: EventLog, series: StepSeries, own: Sequence[BatchFetch]) -> Sequence[Span]:
    """Stretches in which another loader was read.

    Each lasts to the end of that loader's pass, or else until training asks for its next batch.
    """
    if not own:
        return series.aside
    mine = {fetch.loader for fetch in own}
    found: list[Span] = []
    last: BatchFetch | None = None
    for fetch in log.fetches:
        if fetch.loader in mine:
            if last is not None and not last.ended_pass:
                found[-1] = Span(found[-1].start, fetch.start)
            last = None
        elif last is None:
            found.append(Span(fetch.start, fetch.end))
            last = fetch
        else:
            found[-1] = Span(found[-1].start, fetch.end)
            last = fetch
    return found


def _between(own: Sequence[BatchFetch]) -> list[Span]:
    """Stretches from the end of a pass to the first batch of the next."""
    ends = [at for at, fetch in enumerate(own[:-1]) if fetch.ended_pass]
    return [Span(own[at].start, own[at + 1].end) for at in ends]
