"""CPUs shared between the workers of a loader and the threads of a model that computes on them.

Where both want every CPU neither gains alone: workers take the CPUs from the model, and fewer
threads leave them idle. What no config holds is tried from inside, like every what-if.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import Variant
from advisor.tuner.facts import Suggestion
from advisor.tuner.grid import worker_knobs
from advisor.tuner.whatif_words import joined, of_loader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.model import Candidate, Run
    from advisor.tuner.standing import TunerState

MOST_SPLITS = 2
"""Worker counts that get a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """So many CPUs for the workers, and the rest for the model's threads."""

    candidate: Candidate
    """With the workers, where the config holds them."""
    workers: int
    threads: int
    arguments: Mapping[str, int | bool]
    """Of the DataLoader call."""
    site: str | None

    @property
    def variant(self) -> Variant:
        """What one process is to be."""
        loader = [of_loader(self.arguments, self.site)] if self.arguments else []
        whatif = joined([*loader, f"threads={self.threads}"])
        return Variant(candidate=self.candidate, whatif=whatif)


def splits(now: TunerState) -> Sequence[Split]:
    """Those worth a process, the most promising first; none where there is nothing to share, or
    where workers and threads do not want the same CPUs."""
    seen = now.front.effects
    cpus = now.facts.cpus // max(now.front.ranks, seen.world_size or 1)
    if now.front.on_gpu or not now.waiting_shows or seen.workers is None or seen.threads is None:
        return ()
    counts = [each for each in now.loader_alone if 1 <= each < cpus] or [1] * (cpus > 1)
    found = []
    for workers in sorted(counts, key=lambda each: (-promise(now, each), each)):
        split = split_at(now, workers, cpus - workers)
        if split is not None and workers != seen.workers and split.threads < seen.threads:
            found.append(split)
    return found[:MOST_SPLITS]


def promise(now: TunerState, workers: int) -> float:
    """Units/s that so many workers alone could load, but no more than the model alone computes; 0
    where neither was measured. A model that alone was slower than the whole bounds nothing."""
    ceilings = now.original.ceilings
    loads = now.loader_alone.get(workers, 0.0)
    computes = ceilings.compute_units_per_s if ceilings else None
    is_ceiling = computes is not None and computes >= now.original.units_per_s
    return min(loads, computes) if computes and is_ceiling else loads


def split_at(now: TunerState, workers: int, threads: int) -> Split | None:
    """So many workers, in the config where it holds them and else in the code, and threads."""
    candidate, arguments = now.best, {"num_workers": workers}
    if now.held_by_config("num_workers"):
        moved = [now.with_value(knob, workers) for knob in worker_knobs(now)]
        usable = [each for each in moved if not isinstance(each, knobs.InvalidChange)]
        if not usable:
            return None
        candidate, arguments = usable[0], {}
    return Split(
        candidate=candidate,
        workers=workers,
        threads=threads,
        arguments=arguments,
        site=now.front.effects.loader_site,
    )


def shared(now: TunerState, split: Split, run: Run) -> Suggestion:
    """What was faster in `run`, put up for pairs."""
    workers = "1 worker" if split.workers == 1 else f"{split.workers} workers"
    threads = "1 thread" if split.threads == 1 else f"{split.threads} threads"
    return Suggestion(
        kind="sharing",
        title=f"{workers} of the DataLoader and {threads} of torch",
        variant=split.variant,
        run=run,
        gain=now.gain_over_usual(run),
        data=(
            ("workers", split.workers),
            ("threads", split.threads),
            ("cpus", now.facts.cpus),
            *split.arguments.items(),
        ),
    )
