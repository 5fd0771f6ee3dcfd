"""The whole search, read top to bottom: what is free is proven before results are touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.tuner.asking import SearchStep, Stage, Stop
from advisor.tuner.baseline import baseline, worth_trying
from advisor.tuner.discover import discover
from advisor.tuner.flags import tune_flags, tune_memory_savers
from advisor.tuner.grid import tune_grid, tune_workers
from advisor.tuner.ignored import settle_quality
from advisor.tuner.loader import settle_loader, tune_loader
from advisor.tuner.missing import settle_missing
from advisor.tuner.precision import tune_precision
from advisor.tuner.proof import prove
from advisor.tuner.standing import Result, TunerState
from advisor.tuner.steps import tune_steps
from advisor.tuner.whatif import advise

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.tuner.facts import TuningContext

UNKNOWN = 5.0
"""Of a program that did not finish one item within the budget only so much can be said."""


def journey(facts: TuningContext) -> Generator[SearchStep, Result, Stop]:
    """Everything that is asked, in order; returns where it ended."""
    now, failed = yield from baseline(TunerState(facts=facts, clock_s=facts.budget_s))
    if failed is not None:
        return Stop(reason="baseline-failed", standing=now, failed=failed)
    if not now.originals:
        return Stop(reason="budget-too-small", standing=now, needed_s=UNKNOWN * facts.budget_s)
    if facts.objective.unmeasured(now.original):
        return Stop(reason="not-measured", standing=now)
    if now.fewest_s > now.remaining_s and worth_trying(now):
        needed_s = now.budget_for(now.fewest_s)
        return Stop(reason="budget-too-small", standing=now, needed_s=needed_s)
    now = yield from discover(settle_missing(now))
    now = yield from tune_free(now)
    now = yield from prove(now, now.best.only("free", "training"))
    free = now.best
    if facts.allows("numeric"):
        now = yield from tune_precision(now)
        now = yield from tune_flags(now)
    if facts.allows("quality"):
        now = yield from tune_steps(now)
    if now.waits and now.best.key != free.key:
        now = yield from tune_workers(now)
        now = yield from tune_loader(now)
    now = yield from prove(now, now.best)
    now = yield from settle_quality(now)
    now = yield from advise(now)
    return Stop(reason="done", standing=now)


def tune_free(now: TunerState) -> Stage:
    """Batch and workers together, then what costs time to save memory that is there, then how the
    loader hands over what it loads."""
    now = yield from tune_grid(now)
    now = yield from tune_memory_savers(now)
    if now.waits:
        now = yield from tune_loader(now)
    return settle_loader(now)
