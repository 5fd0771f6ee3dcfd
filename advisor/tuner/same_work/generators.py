"""Random generators that worker processes copy, so that they draw what others drew.

A generator that torch does not know, such as a `random.Random` of the dataset, is copied into
each worker as it was. Unless something seeds the copies apart, workers or passes draw alike.
"""

from collections.abc import Sequence

from advisor.model import WorkDifference, WorkerState
from advisor.tuner.same_work.facts import (
    RUNNING,
    Compared,
    Differences,
    is_kept,
    loader_of,
    moved_workers,
    shown,
    suggested,
)
from advisor.tuner.same_work.items import SHARDS, has_own_parts

SEEDS = {"seed", "initial_seed"}
"""What a worker asks for to seed a generator otherwise in each worker and pass."""


def shared_generators(compared: Compared) -> Differences:
    """Random generators that each worker has an equal copy of."""
    originals, before, after = compared.originals, compared.before, compared.after
    if not moved_workers(before, after) or not after.effects.workers:
        return
    work = loader_of(after)
    if not work.iterable and any(run.work and run.work.items_alike for run in originals):
        return  # each item seeds it, or nothing of it shows in an item
    states = [loader_of(run).by_items for run in originals]
    states += [worker.changed for worker in work.workers]
    drawn = {
        path for state in states for path, kind in state.items() if kind == "generator"
    }
    asked = {field for worker in work.workers for field in worker.asked}
    shares = asked >= SHARDS or has_own_parts(work.workers)
    for path in sorted(drawn):
        if path.startswith(RUNNING):
            # It begins anew with each pass in any process, and may order a part of the items.
            if shares or not is_equal_in_two(work.workers, path):
                continue
            effect = "and workers seed it alike, so they draw the same numbers"
        elif not work.workers and path.startswith(("dataset", "collate_fn")):
            effect = "and how workers seed it could not be seen"
        elif any(
            worker.before.get(path) == work.generators.get(path, "")
            for worker in work.workers
        ):
            effect = "so every worker draws the same numbers"
        elif is_equal_in_two(work.workers, path):
            effect = "and workers seed it alike, so they draw the same numbers"
        elif repeats_each_pass(work.workers, path) and not is_kept(after):
            effect = (
                "and is seeded alike for each pass, so every pass draws the same numbers"
            )
        elif is_made_anew(work.workers, path) and not is_kept(after):
            effect = (
                "and made there for each pass: whether passes draw the same could not be "
                "seen"
            )
        elif is_seeded_by_number(work.workers, path) and not is_kept(after):
            effect = (
                "and set there without torch's seed: every pass may draw the same numbers"
            )
        else:
            continue
        yield WorkDifference(
            cause="shared-generator",
            sentence=f"The random generator `{shown(path)}` is copied into each worker, {effect}.",
            refused=True,
            of_workers=True,
        )
        return


def seeded_loop(compared: Compared) -> Differences:
    """Items that seed the process's own generators, once the loop's process makes them.

    After the same first batch the generator is equal in a worker and in the loop's process, though
    they began with other ones.
    """
    before, after = compared.before, compared.after
    if not before.effects.workers or after.effects.workers:
        return
    here = loader_of(after)
    for path, state in sorted(here.first_fetch.items()):
        if any(
            worker.after.get(path) == state
            and worker.before.get(path) not in (state, here.generators.get(path))
            for worker in loader_of(before).workers
        ):
            sentence = (
                f"Items seed the random generator `{path}`, from which the training would "
                "draw."
            )
            yield suggested("shared-generator", sentence, of_workers=True)
            return


def is_equal_in_two(workers: Sequence[WorkerState], path: str) -> bool:
    """True if two workers of one pass were equal after their first items."""
    first = {worker.worker: worker.after.get(path) for worker in reversed(workers)}
    states = [state for state in first.values() if state is not None]
    return len(set(states)) < len(states)


def repeats_each_pass(workers: Sequence[WorkerState], path: str) -> bool:
    """True if one worker began two passes alike, or was alike after the first items of two."""
    for states in (
        [worker.before for worker in workers],
        [worker.after for worker in workers],
    ):
        seen = [
            (worker.worker, state[path])
            for worker, state in zip(workers, states, strict=True)
            if path in state
        ]
        if len(set(seen)) < len(seen):
            return True
    return False


def is_seeded_by_number(workers: Sequence[WorkerState], path: str) -> bool:
    """True if an init function sets the generator, as by the worker's number, in each pass.

    What it asks torch for differs in each pass. Where two passes were seen, they tell it.
    """
    seeded = [worker for worker in workers if path in worker.seeded]
    asked = {field for worker in workers for field in worker.asked}
    several = len({worker.worker for worker in seeded}) < len(seeded)
    return bool(seeded) and not several and not asked & SEEDS


def is_made_anew(workers: Sequence[WorkerState], path: str) -> bool:
    """True if workers make the generator with their first item, and no second pass was seen.

    Each begins without it, so its seed is the program's. A seed of torch's differs in each pass.
    """
    made = [
        worker for worker in workers if path in worker.after and path not in worker.before
    ]
    asked = {field for worker in workers for field in worker.asked}
    several = len({worker.worker for worker in made}) < len(made)
    return bool(made) and not several and not asked & SEEDS
