"""Items of a pass: which come, how many, in what order, and which worker yields them."""

import math
from collections.abc import Sequence
from statistics import median

from advisor.model import Run, WorkDifference, WorkerState
from advisor.tuner import policy
from advisor.tuner.same_work.facts import (
    KINDS,
    Compared,
    Differences,
    draws_for_items,
    ends,
    first_items,
    loader_of,
    moved_batch,
    moved_workers,
    shared_start,
    suggested,
    update_samples,
)

SHARDS = {"id", "num_workers"}
"""Fields of the worker's info without which a worker cannot take its part of a stream."""


def repeated_items(compared: Compared) -> Differences:
    """Items that come twice in a pass where the original's came once."""
    originals, before, after = compared.originals, compared.before, compared.after
    for name in KINDS:
        old = [
            share
            for run in originals
            for share in [first_items(run, name).distinct]
            if share
        ]
        new = first_items(after, name).distinct
        size = min([len(new), *map(len, old)]) - 1
        if not old or size + 1 < policy.REPEATS_TOLD_FROM:
            continue
        fewest, many = min(distinct[size] for distinct in old), 2.0 ** (size + 1)
        all_differ = fewest >= policy.ALL_DIFFERENT_FROM * many
        if not all_differ and many < policy.FEW_KINDS:
            continue
        below = policy.REPEATING_BELOW if all_differ else policy.DRAWN_REPEATING_BELOW
        if new[size] < below * fewest:
            counts = f"{new[size]} differed, of the original's {fewest}"
            yield WorkDifference(
                cause="items-repeat",
                sentence=f"Of the first {2 ** (size + 1)} items {counts}: items are repeated.",
                refused=True,
                of_workers=moved_workers(before, after),
            )
            return


def items_of_a_pass(run: Run) -> float | None:
    """Items of one whole pass that was seen, with those that drop_last leaves out."""
    seen = run.work.pass_items if run.work else ()
    return median(seen) + (run.effects.left_out or 0) if seen else None


def other_passes(compared: Compared) -> Differences:
    """Whole passes with more or fewer items than the original's."""
    originals, before, after = compared.originals, compared.before, compared.after
    counts = [count for run in originals if (count := items_of_a_pass(run)) is not None]
    items = items_of_a_pass(after)
    if items is None or not counts:
        return
    near = min(counts, key=lambda count: abs(count - items))
    if abs(items - near) <= policy.SAMPLES_TIE * near:
        return
    more = items > near
    yield WorkDifference(
        cause="items-repeat" if more else "items-missing",
        sentence=f"A pass had {items:g} items, where the original's had {near:g}.",
        refused=True,
        of_workers=moved_workers(before, after),
    )


def frozen_passes(compared: Compared) -> Differences:
    """Passes that repeat each other where the original's differ: what made them differ is lost.

    Workers that begin each pass from one state, or that stay and miss what the program sets, do so.
    """
    *old, new = [repeats_first_pass(run) for run in (*compared.originals, compared.after)]
    if new and all(repeats is False for repeats in old):
        sentence = "Each pass gave the same items, where the original's passes differed."
        moved = moved_workers(compared.before, compared.after)
        yield WorkDifference(
            cause="items-repeat", sentence=sentence, refused=True, of_workers=moved
        )


def repeats_first_pass(run: Run) -> bool | None:
    """True if the second pass began with the first one's items; None of fewer passes."""
    firsts = [one_pass.came.first for one_pass in loader_of(run).passes[:2]]
    if len(firsts) < 2 or min(map(len, firsts)) < policy.FEWEST_OF_A_PASS:
        return None
    size = min(map(len, firsts))
    return firsts[0][:size] == firsts[1][:size]


def other_content(compared: Compared) -> Differences:
    """Other content at the same indices, where nothing drew random numbers to make it.

    Workers that share an open file move each other's place in it.
    """
    originals, before, after = compared.originals, compared.before, compared.after
    runs = (*originals, after)
    alike = any(run.work and run.work.items_alike for run in originals)
    drawn = any(map(draws_for_items, runs))
    if moved_batch(compared) or not moved_workers(before, after) or not alike or drawn:
        return
    size = min(shared_start(originals[0], run, "drawn") for run in runs)
    *old, new = (first_items(run, "came").first[:size] for run in runs)
    size = min(map(len, (*old, new)))
    if any(start[:size] != old[0][:size] for start in old):
        return
    many = sum(a != b for a, b in zip(new, old[0], strict=False))
    if many:
        sentence = f"Of the first {size} items {many} hold something else than before"
        yield WorkDifference(
            cause="items-missing",
            sentence=f"{sentence}, at the same indices.",
            refused=True,
            of_workers=True,
        )


def other_lengths_of_passes(compared: Compared) -> Differences:
    """Passes of fewer or more items by their loader's length.

    Groups that each drop a rest have fewer, and an epoch of so many batches has more.
    """
    if not moved_batch(compared):
        return
    sizes = [
        (loader_of(run).steps or 0) * (run.effects.batch or 0) for run in ends(compared)
    ]
    old, new = sizes
    batch = max(run.effects.batch or 0 for run in ends(compared))
    if old and new and new + batch < (1 - policy.FEWER_ITEMS_TIE) * old:
        sentence = (
            f"A pass has about {new:g} items by its loader's length, where it had {old:g}."
        )
        yield suggested("items-missing", sentence)
    elif old and new > policy.MORE_ITEMS * old + batch:
        sentence = (
            f"A pass has about {new:g} items by its loader's length, where it had {old:g}."
        )
        yield suggested("items-repeat", sentence)


def dropped_items(compared: Compared) -> Differences:
    """Items of an incomplete last batch that a training never sees: the same ones in each pass."""
    before, after = compared.before, compared.after
    old, new = before.effects.left_out or 0, after.effects.left_out or 0
    first = first_items(after, "drawn").first
    in_order = len(first) > 1 and first == tuple(range(len(first)))
    if before.trains and in_order and new > old:
        sentence = f"The last {new:g} items are dropped in each pass, where it was {old:g}."
        yield suggested("items-missing", sentence)


def alike_items(compared: Compared) -> Differences:
    """Updates over items that lie nearer to each other, as where each batch is of one kind."""
    before, after = ends(compared)
    samples = update_samples(before)
    if not moved_batch(compared) or not before.trains or not samples or samples < 2:
        return
    place = int(math.log2(samples)) - 1
    *spreads, new = (
        first_items(run, "drawn").spread[place : place + 1]
        for run in (*compared.originals, after)
    )
    if (
        all(spreads)
        and new
        and new[0] < policy.NEARER * min(spread[0] for spread in spreads)
    ):
        sentence = (
            "Batches are of items that lie side by side, and an update has fewer of them"
        )
        yield suggested("update-samples", f"{sentence}: they may all be of one kind.")


def is_same_pass(before: Run, after: Run) -> bool:
    """True if whole passes of both were seen, with as many items."""
    old, new = items_of_a_pass(before), items_of_a_pass(after)
    return (
        old is not None and new is not None and abs(new - old) <= policy.SAMPLES_TIE * old
    )


def unsharded(compared: Compared) -> Differences:
    """A stream in several workers that do not share it out.

    An endless one has no pass that could be repeated; whether its workers yield the same is
    seen by their items.
    """
    before, after = compared.before, compared.after
    work, many = loader_of(after), after.effects.workers or 0
    if not work.iterable or many < 2 or not moved_workers(before, after):
        return
    if is_same_pass(before, after) or work.endless:
        return
    asked = {field for state in work.workers for field in state.asked}
    if asked >= SHARDS or has_own_parts(work.workers):
        if work.each_worker:
            sentence = f"Each worker ends its pass by itself, at `{work.each_worker}`"
            yield WorkDifference(
                cause="not-sharded",
                sentence=f"{sentence}: a pass of several has as many more items.",
                refused=True,
                of_workers=True,
            )
        return
    if work.workers and not asked:
        sentence = (
            "No worker asked which part is its own: each worker would yield all of it."
        )
    elif "seeds" in asked:
        sentence = (
            "Workers ask how many they are for a seed only, so each would yield all of it."
        )
    elif asked:
        sentence = "No worker asked for both its number and how many share the data."
    else:
        sentence = "Whether its workers share the data could not be seen."
    yield WorkDifference(
        cause="not-sharded", sentence=sentence, refused=True, of_workers=True
    )


def has_own_parts(workers: Sequence[WorkerState]) -> bool:
    """True if each worker's init function left it another part of the dataset."""
    parts = {worker.worker: worker.part for worker in workers}
    return len(parts) > 1 and all(parts.values()) and len(set(parts.values())) == len(parts)


def is_reordered(before: Run, after: Run) -> bool:
    """True if items of a stream come in another order: several workers take turns.

    A stream that is dealt out a batch at a time comes as it was, which the first items show.
    """
    several = max(before.effects.workers or 0, after.effects.workers or 0) > 1
    old, new = (first_items(run, "came").first for run in (before, after))
    size = min(len(old), len(new))
    as_before = size > 0 and old[:size] == new[:size]
    streams = bool(loader_of(after).iterable) and several and moved_workers(before, after)
    return streams and not as_before


def broken_sequence(compared: Compared) -> Differences:
    """Another order of batches, each of which begins with the state that the one before left."""
    before, after = ends(compared)
    if before.effects.carries and is_reordered(before, after):
        sentence = (
            "A batch begins with the state of the one before, and workers take turns."
        )
        yield suggested("state-of-dataset", sentence, of_workers=True)
