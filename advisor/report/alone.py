"""What the loader and the model do alone, and where that bounds the whole."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.model import Ceilings, LoaderCeiling
from advisor.report import over_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Run


def ceilings_of(runs: Sequence[Run]) -> Ceilings | None:
    """Mean ceilings of the runs that have some; None with fewer than two of them."""
    known = [run.ceilings for run in runs if run.ceilings is not None]
    if len(known) < over_runs.FEWEST:
        return None
    loader: dict[int, list[float]] = {}
    for ceilings in known:
        for each in ceilings.loader:
            loader.setdefault(each.workers, []).append(each.units_per_s)
    return Ceilings(
        compute_units_per_s=over_runs.mean([ceilings.compute_units_per_s for ceilings in known]),
        loader=tuple(
            LoaderCeiling(workers=workers, units_per_s=statistics.fmean(rates))
            for workers, rates in sorted(loader.items())
        ),
    )


def is_ceiling(rate: float, runs: Sequence[Run], workers: int | None = None) -> bool:
    """Whether a part that did `rate` alone may bound the whole: it is not slower than the whole was
    in any run. `workers`: it is the loader, which with other workers than these runs had may be."""
    if workers is not None and workers != runs[-1].effects.workers:
        return True
    return rate >= min(run.units_per_s for run in runs)


def above(found: Ceilings | None, runs: Sequence[Run]) -> Ceilings | None:
    """Those that are ceilings."""
    if found is None:
        return None
    compute = found.compute_units_per_s
    return Ceilings(
        compute_units_per_s=compute if compute and is_ceiling(compute, runs) else None,
        loader=tuple(
            each for each in found.loader if is_ceiling(each.units_per_s, runs, each.workers)
        ),
    )


def below_the_whole(runs: Sequence[Run]) -> dict[str, float]:
    """Mean rates of the parts that were slower alone than the whole, by name."""
    found = ceilings_of(runs) or Ceilings()
    rates = {
        f"loader alone, {numbers.many(each.workers, 'worker')}": each.units_per_s
        for each in found.loader
        if not is_ceiling(each.units_per_s, runs, each.workers)
    }
    compute = found.compute_units_per_s
    if compute is not None and not is_ceiling(compute, runs):
        rates = {"compute alone": compute, **rates}
    return rates


def lines(runs: Sequence[Run], run: Run) -> list[str]:
    """What they did, for the evidence; `run`: the typical one, with what bounds it."""
    found = run.ceilings
    if found is None:
        return []
    measured = [r for r in runs if r.ceilings is not None]
    units = numbers.plural(run.unit)
    said = [
        f"{name[0].upper()}{name[1:]} did {numbers.number(rate)} {units}/s, less than the whole: "
        "its ceiling is not told apart from what the whole did."
        for name, rate in below_the_whole(runs).items()
    ]
    if found.compute_units_per_s:
        alone = over_runs.ranged(
            measured,
            lambda r: r.ceilings.compute_units_per_s if r.ceilings else None,
            numbers.number,
        )
        said.append(f"With the loader bypassed the model alone did {alone} {units}/s.")
    if found.loader:
        best = max(found.loader, key=lambda c: c.units_per_s).workers

        def rate(r: Run) -> float | None:
            each = {c.workers: c.units_per_s for c in r.ceilings.loader} if r.ceilings else {}
            return each.get(best)

        alone = over_runs.ranged(measured, rate, numbers.number)
        workers = numbers.many(best, "worker")
        said.append(f"The loader alone did up to {alone} {units}/s, with {workers}.")
    return said
