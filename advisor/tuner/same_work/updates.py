"""Updates of the weights: their samples, what else moves in each, and what counts batches."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from advisor import numbers
from advisor.model import TRAINING_STEPS, Run, UpdateWork
from advisor.tuner import policy
from advisor.tuner.same_work.facts import (
    Compared,
    Differences,
    ends,
    is_called_once,
    loader_of,
    moved_batch,
    suggested,
    update_samples,
    updates_of,
)


def other_updates(compared: Compared) -> Differences:
    """Updates over more or fewer samples."""
    before, after = compared.before, compared.after
    if not {before.step_kind, after.step_kind} & set(TRAINING_STEPS):
        return
    old, new = update_samples(before), update_samples(after)
    if old and new and abs(new - old) > policy.SAMPLES_TIE * old:
        yield suggested(
            "update-samples",
            f"An update averaged over {new:g} samples, where it was {old:g}.",
        )


def other_parts(compared: Compared) -> Differences:
    """Fewer weights that an update moves, as where each batch is of one task.

    Where it is another number from run to run, as of layers that are left out by chance, it tells
    nothing.
    """
    if not moved_batch(compared):
        return
    counts = {updates_of(run).parts for run in compared.originals}
    if len(counts) > 1:
        return
    (old,), new = counts, updates_of(compared.after).parts
    if old and new and abs(new - old) > policy.SAMPLES_TIE * old:
        sentence = f"An update has gradients of {new:g} weights, where it had {old:g}."
        yield suggested("update-samples", sentence)


def other_update_rows(compared: Compared) -> Differences:
    """Rows beside the loader's batches, such as remembered items: as many for each batch.

    Only where equal runs have as many: items that are cut into rows have some more or less.
    """
    if not moved_batch(compared) or not compared.before.trains:
        return
    runs = (*compared.originals, compared.after)
    if not all(run.work and run.work.update_rows and update_samples(run) for run in runs):
        return
    *old, new = (run.work.update_rows or 0.0 for run in runs if run.work)
    before, after = (update_samples(run) or 0.0 for run in ends(compared))
    steady = max(old) - min(old) <= policy.SAMPLES_TIE * min(old)
    scaled = old[-1] * after / before
    if steady and abs(new - scaled) > policy.ROWS_TIE * scaled:
        sentence = (
            f"An update takes {new:g} rows through the network, where it took {scaled:g}."
        )
        yield suggested("update-samples", sentence)


def untrained_batches(compared: Compared) -> Differences:
    """More batches that are left out, as where one bad item makes a loss that is not finite."""
    if not moved_batch(compared) or not compared.before.trains:
        return
    *old, new = (
        run.work.untrained if run.work else None
        for run in (*compared.originals, compared.after)
    )
    shares = [share for share in old if share is not None]
    if shares and new is not None and new > max(shares) + policy.UNTRAINED_TIE:
        change = f"{numbers.percent(new)}, where it was {numbers.percent(fmean(shares))}"
        yield suggested("items-missing", f"Batches without a backward pass: {change}.")


def once_a_batch(compared: Compared) -> Differences:
    """What the code draws, takes or moves once a batch, in updates of more or fewer batches."""
    if not moved_batch(compared) or not compared.before.trains:
        return
    old, new = (run.effects.accumulation for run in ends(compared))
    if old and new and abs(new - old) > policy.SAMPLES_TIE * old:
        for code in updates_of(compared.before).once_a_batch[:1]:
            times = f"{new:g} times an update, where it ran {old:g} times"
            yield suggested("counters", f"`{code}` runs once a batch: {times}.")


def updates_of_a_pass(compared: Compared) -> Differences:
    """Another number of updates in a whole pass: each may drop what fills no update."""
    if not moved_batch(compared) or not compared.before.trains:
        return
    old, new = (
        [one_pass.updates for one_pass in loader_of(run).passes if one_pass.updates]
        for run in ends(compared)
    )
    if (
        old
        and new
        and abs(fmean(new) - fmean(old)) > policy.UPDATES_OF_PASS_TIE * fmean(old)
    ):
        sentence = f"A pass has {fmean(new):g} updates, where it had {fmean(old):g}."
        yield suggested("update-samples", sentence)


def other_averages(compared: Compared) -> Differences:
    """Another number of moves of the weights' running average in an update."""
    old, new = (moves_of_averages(updates_of(run)) for run in ends(compared))
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            times = f"{new[name]:g} times an update where it moved {old[name]:g} times"
            yield suggested("running-average", f"{name} moves {times}.")


def other_distances(compared: Compared) -> Differences:
    """A running average of the weights that moves further in its updates, by another decay."""
    if not moved_batch(compared):
        return
    *of_originals, new = (
        updates_of(run).copies_moved for run in (*compared.originals, compared.after)
    )
    moves, then = (updates_of(run).copies for run in ends(compared))
    for name in sorted(
        new.keys() & set.intersection(*(set(distances) for distances in of_originals))
    ):
        if moves.get(name) != then.get(name):
            continue  # told by their number
        size = min(len(distances[name]) for distances in (*of_originals, new))
        *old, far = (sum(distances[name][:size]) for distances in (*of_originals, new))
        if size < policy.FEWEST_DISTANCES or not min(old):
            continue
        apart = policy.DISTANCE_TIE * max(old) / min(old)
        if far > apart * max(old) or far < min(old) / apart:
            ratio = numbers.measure(far / fmean(old), 2)
            text = f"The copy of the weights in `{name}` moves {ratio} times as far in an update"
            yield suggested("running-average", f"{text}: its pace follows the batch.")
            return


def moves_of_averages(updates: UpdateWork) -> dict[str, float]:
    """Moves in an update by what moves: torch's own average, and those kept by hand."""
    by_mover = {
        f"The copy of the weights in `{name}`": moves
        for name, moves in updates.copies.items()
    }
    of_torch = steps_of_an_update(updates.averages)
    if any(updates.averages) and of_torch is not None:
        by_mover["The running average of the weights"] = of_torch
    return by_mover


def other_buffers(compared: Compared) -> Differences:
    """Another number of moves in an update of what networks keep beside their weights."""
    if not moved_batch(compared):
        return
    old, new = (updates_of(run).beside for run in ends(compared))
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            times = f"{new[name]:g} times an update where it moved {old[name]:g} times"
            yield suggested("running-average", f"`{name}` moves {times}.")
            return


def other_edits(compared: Compared) -> Differences:
    """Weights or gradients that the program edits more or less often in an update.

    Only with another batch: a GradScaler edits gradients too, which another precision brings along.
    Edits that equal runs make now and then follow the data.
    """
    if not moved_batch(compared):
        return
    of_originals, new = (
        [updates_of(run).edits for run in compared.originals],
        updates_of(compared.after),
    )
    for name in sorted(new.edits):
        old = {edits.get(name) for edits in of_originals}
        if len(old) == 1 and None not in old and new.edits[name] not in old:
            before, after = of_originals[0][name], new.edits[name]
            edits = f"Edits of {name} outside of the optimizer: {after:g} an update"
            yield suggested("own-edits", f"{edits}, where there were {before:g}.")


def other_counts(compared: Compared) -> Differences:
    """A number that counts batches, and by which the program computes."""
    if not moved_batch(compared):
        return
    old, new = (updates_of(run).counts for run in ends(compared))
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, 1.0), new.get(name, 1.0)
        if before != after:
            sentence = (
                f"`{name}` counts batches, and the program goes by it: {after:g} an update"
            )
            yield suggested("counters", f"{sentence}, where there were {before:g}.")
            return
    old, new = (updates_of(run).counts_at_updates for run in ends(compared))
    for name in sorted(old.keys() & new.keys()):
        if abs(new[name] - old[name]) > policy.SAMPLES_TIE * old[name]:
            sentence = (
                f"`{name}` grows by {new[name]:g} an update, where it grew by {old[name]:g}"
            )
            yield suggested("counters", f"{sentence}, and the program goes by it.")
            return


def other_lengths(compared: Compared) -> Differences:
    """A loop that ends after so many batches, whatever their size."""
    if not moved_batch(compared):
        return
    before, after = ends(compared)
    old, new = limits_of(before), limits_of(after)
    batches = [run.effects.batch or 0.0 for run in ends(compared)]
    for name in sorted(old.keys() & new.keys()):
        items = [old[name] * batches[0], new[name] * batches[1]]
        left = 0.0 if not before.trains else max(batches)  # a last batch may be smaller
        if items[1] < items[0] - left or items[1] > items[0] + max(batches):
            sentence = f"`{name}` ends a loop after {new[name]:,.0f} batches"
            sizes = f"{items[1]:,.0f} items, where there were {items[0]:,.0f}"
            yield suggested("counters", f"{sentence}: {sizes}.")
            return


def limits_of(run: Run) -> Mapping[str, float]:
    """Batches after which the run's loops end, by condition.

    Without a loader a call of the network may be a step of a sampler or a token: only where an item
    goes through it once is it a batch.
    """
    if run.work is None or run.work.loader is not None:
        return loader_of(run).limits
    return run.work.limits if run.trains or is_called_once(run) else {}


def other_statistics(compared: Compared) -> Differences:
    """Normalisation by a batch of another size."""
    if not moved_batch(compared):
        return
    before, after = ends(compared)
    old, new = before.effects.batch or 0.0, after.effects.batch or 0.0
    if updates_of(after).batch_statistics or updates_of(before).batch_statistics:
        sentence = f"BatchNorm normalises by {new:g} samples at once, where it was {old:g}."
        yield suggested("batch-statistics", sentence)


def steps_of_an_update(counted: Sequence[int]) -> float | None:
    """Steps in most updates."""
    steps = [after - before for before, after in pairwise(counted)]
    return float(median(steps)) if steps else None
