"""Results of an inference: its outputs, and the files that it leaves."""

import math
from collections.abc import Sequence
from statistics import fmean

from advisor import numbers
from advisor.model import Run
from advisor.tuner import policy
from advisor.tuner.same_work.facts import (
    KINDS,
    Compared,
    Differences,
    ends,
    first_items,
    is_called_once,
    loader_of,
    moved_batch,
    shared_start,
    suggested,
)


def other_files(compared: Compared) -> Differences:
    """Files of an inference that hold a batch each."""
    before, after = ends(compared)
    if not moved_batch(compared) or before.trains or after.trains:
        return
    old, new = (files_of_a_batch(run) for run in ends(compared))
    alike = old and new and abs(new - old) <= policy.FILES_OF_BATCH_TIE * old
    if alike and (before.effects.batch or 0) > 1:
        batches = [run.effects.batch or 0 for run in ends(compared)]
        sentence = f"A file holds {batches[1]:g} items, where it held {batches[0]:g}."
        yield suggested("results", sentence)


def files_of_a_batch(run: Run) -> float | None:
    """Files that a batch leaves; None where too few were left to tell."""
    files, batch = run.files_in_window or 0, run.effects.batch
    items = min(run.units, run.whole_units)
    return (
        files * batch / items if batch and items and files >= policy.ENOUGH_FILES else None
    )


def other_results(compared: Compared) -> Differences:
    """Another result of an inference's first item, where nothing drew random numbers."""
    before, after = ends(compared)
    if not moved_batch(compared) or before.trains or after.trains:
        return
    runs = (*compared.originals, after)
    if (
        any(loader_of(run).draws is not False for run in runs)
        or len({r.effects.dtype for r in runs}) > 1
    ):
        return
    if not any(
        first_items(before, n).first[:1] == first_items(after, n).first[:1] != ()
        for n in KINDS
    ):
        return
    results = [run.effects.outputs[0] for run in runs if run.effects.outputs]
    alike = before.effects.input_shapes == after.effects.input_shapes
    sizes = {len(result) for result in results}
    if (
        len(results) < len(runs)
        or len(sizes) != 1
        or not (alike or max(sizes) < policy.RESULT_NUMBERS)
    ):
        return
    *old, new = results
    allowed = (
        policy.RESULT_TIE * max((abs(number) for number in old[0]), default=0.0)
        + policy.RESULT_LEAST
    )
    unlike = [
        max(map(abs, map(float.__sub__, result, old[0])), default=0.0)
        for result in (*old, new)
    ]
    if max(unlike[:-1]) <= allowed < unlike[-1]:
        yield suggested("results", "The first item's result differs by more than rounding.")


def other_rows(compared: Compared) -> Differences:
    """Results of later rows that follow the others of their batch, as padded ones do.

    Items that are sorted within their batch come out in another order, and are the same.
    """
    before, after = ends(compared)
    runs = (*compared.originals, after)
    if (
        not moved_batch(compared)
        or any(run.trains or loader_of(run).draws is not False for run in runs)
        or len({run.effects.dtype for run in runs}) > 1
        or not all(is_called_once(run) for run in runs)
    ):
        return
    alike = max(shared_start(before, after, name) for name in KINDS)
    size = min(alike, *(len(run.effects.rows) for run in runs))
    *old, new = (run.effects.rows[:size] for run in runs)
    if any(unlike_rows(old[0], rows) for rows in old[1:]):
        return
    places = unlike_rows(old[0], new)
    if places and unlike_rows(sorted(old[0]), sorted(new)):
        sentence = f"Of the first {size} items {len(places)} have another result in a larger batch."
        yield suggested("results", sentence)


def shorter_texts(compared: Compared) -> Differences:
    """Generations of fewer tokens in a larger batch, as where their length counts its padding.

    One that waits for its longest text has as many calls as the longest of the same prompts.
    """
    before, after = ends(compared)
    old, new = (run.work.generations if run.work else () for run in ends(compared))
    larger = (after.effects.batch or 0) / (before.effects.batch or math.inf)
    if larger < 2 or not old or not new:
        return
    fewest = 1 - policy.FEWER_CALLS_TIE
    same_prompts = max(old[: int(larger)])
    if new[0] < fewest * same_prompts and fmean(new) < fewest * fmean(old):
        lengths = [numbers.measure(fmean(tokens), 2) for tokens in (new, old)]
        sentence = f"A generation has {lengths[0]} tokens, where it had {lengths[1]}."
        yield suggested("results", sentence)


def unlike_rows(
    old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]
) -> list[int]:
    """Places of rows as long as before whose numbers differ by more than rounding."""
    places = []
    for at, (one, other) in enumerate(zip(old, new, strict=True)):
        largest = max(map(abs, one[1:]), default=0.0)
        allowed = policy.RESULT_TIE * largest + policy.RESULT_LEAST
        pairs = zip(one[1:], other[1:], strict=False)
        if one[0] == other[0] and any(abs(a - b) > allowed for a, b in pairs):
            places.append(at)
    return places
