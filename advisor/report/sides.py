"""The two columns of the report: one configuration each, from the runs that measured it."""

from __future__ import annotations

import statistics
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from advisor.executor.comparison import AFTER, BEFORE
from advisor.model import Candidate, Interval, Run, Shares
from advisor.report.bottleneck import typical
from advisor.report.model import Side
from advisor.stats import walsh_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.executor.comparison import Comparison
    from advisor.tuner.standing import TunerState


def sides(
    now: TunerState, comparisons: Sequence[Comparison], winner: Candidate
) -> tuple[Side, Side]:
    """The two columns of the table; `after` equals `before` when nothing was changed."""
    quality = now.quality
    first = typical(now.originals) if now.originals else None
    before = side(runs_of(now, comparisons, Candidate()), dict(quality.before), first)
    if not winner.changes:
        return before, before
    after = dict(quality.after) if winner.only("numeric", "quality").changes else {}
    written = runs_of(now, comparisons, winner)
    return before, side(written, after or dict(quality.before))


def runs_of(now: TunerState, comparisons: Sequence[Comparison], candidate: Candidate) -> list[Run]:
    """Every sound run of one configuration: the baseline, and an arm of whatever contest. The run
    that chose it in the search is none of them. The undisturbed alone where there are several."""
    arms = [
        (each, arm, request)
        for each in comparisons
        if each.ab_test.purpose != "quality"
        for arm, request in ((BEFORE, each.ab_test.before), (AFTER, each.ab_test.after))
    ]
    found = [] if candidate.changes else list(now.originals)
    found += [
        run
        for each, arm, request in arms
        if request.variant.candidate.key == candidate.key and request.variant.whatif is None
        for run in each.runs(arm)
    ]
    quiet = [run for run in found if run.disturbance.disturbed is not True]
    return quiet if len(quiet) > 1 else found


def side(runs: list[Run], quality: dict[str, float], first: Run | None = None) -> Side:
    """One column from the runs of one configuration; the parts and the operations of a step were
    told by its `first` ones alone."""
    if not runs:
        return Side(quality=quality)
    rates = rate_interval([run.units_per_s for run in runs])
    mean = typical(runs)
    alone = first.ceilings if first else None
    mean = replace(mean, flops=first.flops if first else None)
    energy = [
        run.telemetry.energy_j / run.units for run in runs if run.telemetry.energy_j and run.units
    ]
    return Side(
        units_per_s=rates.estimate,
        units_per_s_low=rates.low if rates.n > 1 else None,
        units_per_s_high=rates.high if rates.n > 1 else None,
        tokens_per_s=_middle([run.tokens_per_s for run in runs]),
        latency_p50_ms=_middle([run.latency_p50_ms for run in runs]),
        latency_p95_ms=_middle([run.latency_p95_ms for run in runs]),
        peak_mem_gib=_most([run.peak_mem_gib for run in runs]),
        quality=quality,
        gpu_util_pct=_middle([run.telemetry.gpu_util_pct for run in runs]),
        cpu_util_pct=_middle([run.telemetry.cpu_util_pct for run in runs]),
        achieved_tflops=mean.achieved_tflops,
        wait_share=_middle([run.wait_share for run in runs]),
        step_ms=_middle([run.step_ms for run in runs]),
        step_kind=mean.step_kind,
        startup_s=_middle([run.startup_s for run in runs]),
        energy_j_per_unit=statistics.median(energy) if energy else None,
        power_w=_middle([run.telemetry.power_w for run in runs]),
        batch=mean.effects.batch,
        workers=mean.effects.workers,
        data_items=mean.effects.data_items,
        forwards_per_unit=mean.effects.forwards_per_unit,
        compute_units_per_s=alone.compute_units_per_s if alone else None,
        shares=_shares(mean.shares),
    )


def rate_interval(rates: list[float]) -> Interval:
    """Median rate of equal processes; the exact bounds where there are enough, else the range."""
    middle = statistics.median(rates)
    exact = walsh_interval(rates, 0.025)
    low = exact.low if exact.low > 0 else min(rates)
    high = exact.high if exact.high < float("inf") else max(rates)
    return Interval(estimate=middle, low=low, high=high, n=len(rates))


def _middle(values: list[float | None]) -> float | None:
    seen = [value for value in values if value is not None]
    return statistics.median(seen) if seen else None


def _most(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _shares(shares: Shares) -> dict[str, float]:
    return {name: share for name, share in asdict(shares).items() if share is not None}
