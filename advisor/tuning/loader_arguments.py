"""Arguments of the DataLoader call that stand in the code, tried from inside the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Run
from advisor.tuning import patches
from advisor.tuning.bottleneck import on_gpu
from advisor.tuning.loader import waits, worker_counts
from advisor.tuning.proposals import (
    Proposal,
    faster_run,
    held_by_config,
    located,
    measure,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from advisor.tuning.search import Search


def loader_proposals(search: Search, without_gain: list[str]) -> list[Proposal]:
    """Arguments of the DataLoader call, each on top of those that were faster: one proposal."""
    best = search.best
    assert best is not None
    if best.effects.workers is None:
        return []
    site = best.effects.loader_site
    chosen: dict[str, int | bool] = {}
    fastest: Run | None = None
    for name, values in loader_values(search):
        for value in values:
            if _needs_workers(name) and not chosen.get("num_workers", best.effects.workers):
                continue
            whatif = loader_whatif({**chosen, name: value}, site)
            run = faster_run(search, whatif, without_gain)
            if run is None and name == "batch_size":
                break
            if run is None or (fastest is not None and not search.faster(run, fastest)):
                continue
            if fastest is not None and not again_faster(search, whatif, fastest):
                continue
            fastest, chosen = run, {**chosen, name: value}
    if fastest is None:
        return []
    place = located(search, site)
    return [
        Proposal(
            candidate=search.best_candidate,
            whatif=loader_whatif(chosen, site),
            title="DataLoader arguments: "
            + ", ".join(f"{name}={value!r}" for name, value in chosen.items()),
            detail=loader_detail(best, fastest),
            run=fastest,
            ratio=fastest.units_per_s / best.units_per_s,
            site=written_at(place, site),
            patch=patches.loader_patch(*place, chosen, search.runner.program.cwd)
            if place
            else None,
        )
    ]


def written_at(place: tuple[Path, int] | None, site: str | None) -> str | None:
    """`train.py:88 DataLoader(...)`: the call that holds the arguments, where it was found."""
    found = patches.loader_place(*place) if place else None
    if site is None or found is None:
        return site
    line, name = found
    return f"{site.rpartition(':')[0]}:{line} {name}(...)"


def again_faster(search: Search, whatif: str, fastest: Run) -> bool:
    """Whether a second run agrees: an argument on top of others must not come in by one draw."""
    result = measure(search, whatif, series="again")
    return isinstance(result, Run) and search.faster(result, fastest)


def loader_values(search: Search) -> Iterable[tuple[str, list[int] | list[bool]]]:
    """Arguments worth trying and their values, in the order in which they build on each other."""
    assert search.best is not None
    seen = search.best.effects
    if waits(search):
        if not held_by_config(search, "num_workers"):
            yield "num_workers", worker_counts(search, seen.workers)
        if not held_by_config(search, "prefetch_factor") and (seen.prefetch_factor or 2) < 4:
            yield "prefetch_factor", [4]
        if not held_by_config(search, "persistent_workers") and not seen.persistent_workers:
            yield "persistent_workers", [True]
    if (
        on_gpu(search.best)
        and not held_by_config(search, "pin_memory")
        and seen.pin_memory is False
    ):
        yield "pin_memory", [True]
    if not search.trains and not held_by_config(search, "batch_size") and seen.batch:
        yield "batch_size", [int(seen.batch) * times for times in (2, 4, 8, 16)]


def _needs_workers(name: str) -> bool:
    return name in {"prefetch_factor", "persistent_workers"}


def loader_whatif(values: dict[str, int | bool], site: str | None) -> str:
    """`loader.num_workers=4,loader.prefetch_factor=4@train.py:88`"""
    words = ",".join(f"loader.{name}={int(value)}" for name, value in values.items())
    return words + (f"@{site}" if site else "")


def loader_detail(before: Run, after: Run) -> str:
    """What the arguments did, for the report."""
    text = (
        "They stand in the code and no config key holds them. The program waited "
        f"{before.wait_share or 0:.0%} of its time for data, and {after.wait_share or 0:.0%} "
        "with these"
    )
    caution = after.whatif.caution if after.whatif else None
    return f"{text}. Mind that {caution}." if caution else f"{text}."
