"""Facts of two trials that several rules read, and what a difference is told as.

A fact that a run does not hold is None or empty here, never 0: it proves no difference.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.model import Items, LoaderWork, Run, UpdateWork, WorkDifference
from advisor.tuner import policy

KINDS = ("drawn", "came")
"""Numbers that stand for items: indices, and content."""
RUNNING = "iterator."
"""Start of the paths of generators that lie in a stream's running code."""
Differences = Iterator[WorkDifference]


class Compared(NamedTuple):
    """Runs of the original, and one of a candidate."""

    originals: Sequence[Run]
    after: Run

    @property
    def before(self) -> Run:
        return self.originals[-1]


def ends(compared: Compared) -> tuple[Run, Run]:
    return compared.before, compared.after


def loader_of(run: Run) -> LoaderWork:
    """Work of the run's loader; an empty one where it told nothing."""
    return (run.work and run.work.loader) or LoaderWork()


def updates_of(run: Run) -> UpdateWork:
    return (run.work and run.work.updates) or UpdateWork()


def first_items(run: Run, name: str) -> Items:
    passes = loader_of(run).passes
    items: Items = getattr(passes[0], name) if passes else Items()
    return items


def shared_start(before: Run, after: Run, name: str) -> int:
    """Items by which both runs begin alike."""
    old, new = (first_items(run, name).first for run in (before, after))
    pairs = zip(old, new, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def draws_for_items(run: Run) -> bool:
    """True if making items moved a random generator, in whatever process makes them."""
    work = loader_of(run)
    states = [work.by_items, *(worker.changed for worker in work.workers)]
    return any("generator" in state.values() for state in states)


def update_samples(run: Run) -> float | None:
    """Samples of one update, of all ranks; None where they were not seen."""
    if run.work is not None and run.work.update_samples is not None:
        return run.work.update_samples
    seen = run.effects
    batch = seen.group_batch or seen.batch
    return batch * seen.accumulation if batch and seen.accumulation else None


def moved_batch(compared: Compared) -> bool:
    old, new = compared.before.effects.batch, compared.after.effects.batch
    return bool(old and new and abs(new - old) > policy.SAMPLES_TIE * old)


def moved_workers(before: Run, after: Run) -> bool:
    old, new = before.effects, after.effects
    return (old.workers or 0, is_kept(before)) != (new.workers or 0, is_kept(after))


def is_kept(run: Run) -> bool:
    """True if workers outlive a pass."""
    return bool(run.effects.workers and run.effects.persistent_workers)


def is_called_once(run: Run) -> bool:
    """True if each item goes through the network once."""
    forwards = run.effects.forwards_per_unit
    return forwards is not None and abs(forwards - 1) < policy.ONE_CALL_TIE


def suggested(cause: str, sentence: str, *, of_workers: bool = False) -> WorkDifference:
    return WorkDifference(
        cause=cause,  # type: ignore[arg-type]
        sentence=sentence,
        refused=False,
        of_workers=of_workers,
    )


def shown(path: str) -> str:
    """Path as the program would write it: `rng` of its dataset, `transform.rng`."""
    roots = ("dataset.", "collate_fn.", RUNNING)
    inner = path.split(".", 1)[-1] if path.startswith(roots) else path
    return inner.removesuffix("[]")
