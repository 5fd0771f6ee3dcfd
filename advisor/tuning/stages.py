"""Bottleneck first: baseline and ceilings, then loader and batch in the order that pays."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from advisor.errors import TrialFailedError
from advisor.model import Candidate, Failure
from advisor.stats import noise_band
from advisor.tuning.batch import tune_batch
from advisor.tuning.loader import settle_loader, tune_loader, waits
from advisor.tuning.runner import OverBudgetError

if TYPE_CHECKING:
    from advisor.tuning.search import Search


def measure_baseline(search: Search) -> None:
    """The original, at least twice, in fresh processes. Raises TrialFailedError on any failure.

    If an earlier call measured the same original at another speed, its history is not trusted.
    """
    runner = search.runner
    plan = search.plan(Candidate(), whole_batches=1)
    known = runner.recall_baseline(plan)
    for _ in range(2):
        result = runner.measure(Candidate(), "baseline", plan, fresh=True)
        if isinstance(result, Failure):
            msg = (
                f"The original command failed ({result.kind}): {result.evidence.rstrip('.')}.\n"
                f"{result.next_step}\n{result.log_tail}".rstrip()
            )
            raise TrialFailedError(result.kind, msg)
        search.baseline.append(result)
    search.noise = noise_here(search)
    search.adopt(Candidate(), search.original)
    if known is not None:
        drift = abs(known.units_per_s / search.original.units_per_s - 1)
        if drift > max(search.band, 0.1):
            runner.forget_history()
            search.notes.append(
                f"Earlier measurements were set aside: the same original ran {drift:.0%} apart."
            )


def noise_here(search: Search) -> float:
    """Relative spread between equal processes: of these baselines, and as this host showed before.

    Two draws are a poor estimate of a machine that has two speeds, so the host's record counts.
    """
    now = noise_band([run.windows or (run.units_per_s,) for run in search.baseline])
    kept = search.runner.history.host_spreads(search.runner.machine_key)
    before = [band for rates in kept if (band := noise_band([[rate] for rate in rates]))]
    return max(now or 0.0, statistics.median(before) if before else 0.0)


def measure_ceilings(search: Search) -> None:
    """Compute alone and loader alone, in one process of the original."""
    cpus = search.machine.cpus
    current = search.original.effects.workers
    if current is None:
        return
    workers = tuple(sorted({0, 1, min(2, cpus), cpus, min(current, 4 * cpus)}))
    try:
        result = search.run(
            Candidate(), "ceilings", ceilings_workers=workers, ceilings_s=1.0, measure_s=1.0
        )
    except OverBudgetError as problem:
        search.over_budget("ceilings", problem, matters=False)
        return
    if isinstance(result, Failure):
        search.notes.append(f"The parts could not be measured alone: {result.evidence}")


def tune_free_and_training(search: Search) -> None:
    """Loader while the program waits for it, then batch; again as long as that moved something.

    A batch that gains nothing behind a slow loader may gain behind a faster one.
    """
    for _ in range(4):
        start = search.best_candidate
        if waits(search):
            tune_loader(search)
        tune_batch(search)
        if search.best_candidate == start or not waits(search):
            break
    settle_loader(search)
