"""Losses of the first updates, and whether they depend on what else is in a batch."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from advisor import numbers
from advisor.model import Run
from advisor.tuner import policy
from advisor.tuner.same_work.facts import (
    Compared,
    Differences,
    draws_for_items,
    ends,
    first_items,
    loader_of,
    moved_batch,
    suggested,
    update_samples,
    updates_of,
)


def other_losses(compared: Compared) -> Differences:
    """Another loss of the first updates, whose samples are as many and of one distribution.

    Told are gradients that are summed over the batches of an update, and losses that hold
    the items of a batch against each other. Both sides have the same updates, so a loss
    that falls meanwhile does so in both. Runs that repeat themselves are compared update by
    update: the hardest half of two items has nearly the mean loss of the hardest half of 32.
    """
    if not moved_batch(compared):
        return
    if begin_anew(compared):
        sentence = (
            "Each run begins with other weights, so no loss tells what an update does."
        )
        yield suggested("loss-of-update", sentence)
        return
    compared = begun_alike(compared)
    *old, new = comparable_losses(compared)
    updates = min(map(len, (*old, new)))
    if (
        not any((*old, new))
        and len(updates_of(compared.after).rates) >= policy.FEWEST_UPDATES
    ):
        sentence = (
            "No loss of an update was seen, so nothing tells whether it depends on the "
            "batch."
        )
        yield suggested("loss-of-update", sentence)
    if updates < policy.FEWEST_UPDATES:
        return
    old, new = [losses[:updates] for losses in old], new[:updates]
    if is_repeatable(compared, old):
        moved = distance(new, old[0])
        if moved > policy.SAME_ITEMS_TIE:
            yield suggested(
                "loss-of-update",
                f"Of the same items, the first updates' losses differ by {numbers.percent(moved)}: "
                "the loss of an update depends on its batches.",
            )
        return
    if losses_differ(old, new):
        figures = f"{fmean(new):.3g} where it was {fmean(map(fmean, old)):.3g}"
        yield suggested("loss-of-update", f"The first updates have a loss of {figures}.")


def begin_anew(compared: Compared) -> bool:
    """True if no two runs began with equal weights: the program draws them from the clock, say."""
    runs = (*compared.originals, compared.after)
    weights = {updates_of(run).first_weights for run in runs}
    return len(weights) == len(runs) > 2 and "" not in weights


def begun_alike(compared: Compared) -> Compared:
    """With the originals alone that began with the candidate's weights; all where none did.

    The first baseline has another seed than the runs after it. Where weights depend on the batch,
    as what was drawn before them does, losses are compared all the same.
    """
    weights = updates_of(compared.after).first_weights
    alike = [run for run in compared.originals if updates_of(run).first_weights == weights]
    return compared._replace(originals=alike or compared.originals)


def comparable_losses(compared: Compared) -> list[Sequence[float]]:
    """Losses by update of each run, the candidate's last; means, where the program adds them up."""
    runs = (*compared.originals, compared.after)
    if not is_divided_at_the_update(compared):
        return [losses_of(run) for run in runs]
    return [
        [loss / (run.effects.accumulation or 1) for loss in losses_of(run)] for run in runs
    ]


def losses_differ(old: Sequence[Sequence[float]], new: Sequence[float]) -> bool:
    """True if a candidate's losses are further from the originals' than equal work explains.

    They may differ by a share of the loss or by the chance of the items, whichever is more, and by
    what the originals differ by among themselves. The first update is held against the first, the
    second against the second, and the chance is the standard error of these differences: a loss
    that falls on both sides adds nothing to it. A loss falls by a share of itself, so logarithms
    are compared where all losses are positive.
    """
    tie = policy.LOSS_TIE * abs(fmean(map(fmean, old)))
    if min(map(min, (*old, new))) > 0:
        tie = math.log1p(policy.LOSS_TIE)
        old = [list(map(math.log, losses)) for losses in old]
        new = list(map(math.log, new))
    differences = [one - fmean(others) for one, *others in zip(new, *old, strict=True)]
    chance = policy.LOSS_SIGMAS * stdev(differences) / math.sqrt(len(differences))
    means = [fmean(losses) for losses in old]
    return bool(abs(fmean(differences)) > max(tie, chance) + max(means) - min(means))


def other_gradients(compared: Compared) -> Differences:
    """Other gradients of the same items, though their losses are alike.

    A mean over the tokens of a batch weighs texts by their neighbours, and hardly shows in a loss.
    """
    if not moved_batch(compared):
        return
    compared = begun_alike(compared)
    runs = (*compared.originals, compared.after)
    losses = [losses_of(run) for run in runs]
    *old, new = (updates_of(run).gradients[:1] for run in runs)
    if not all((*old, new)) or not is_repeatable(compared, losses[:-1], padded=True):
        return
    if any(relative_distance(run[0], old[0][0]) > policy.EQUAL_RUNS_TIE for run in old):
        return
    moved = relative_distance(new[0], old[0][0])
    if moved > policy.SAME_GRADIENT_TIE:
        sentence = f"Of the same items, the gradients differ by {numbers.percent(moved)}"
        yield suggested("loss-of-update", f"{sentence}: the loss depends on its batches.")


def relative_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Distance of two gradients over the length of the other; 0 if they are not comparable."""
    length = math.hypot(*other)
    return math.dist(one, other) / length if length and len(one) == len(other) else 0.0


def losses_of(run: Run) -> Sequence[float]:
    """Loss of each of the first updates, added up over its batches; empty if none was seen."""
    return updates_of(run).losses


def mixed_losses(compared: Compared) -> Differences:
    """A loss that holds the items of a batch against each other."""
    runs = (*compared.originals, compared.after)
    if moved_batch(compared) and any(updates_of(run).mixes for run in runs):
        sentence = "The loss of an item depends on the others of its batch."
        yield suggested("loss-of-update", sentence)


def is_divided_at_the_update(compared: Compared) -> bool:
    """True if the program adds up the losses of an update and divides its gradients afterwards.

    Its losses are then as many times larger as an update has batches, and its gradients are as
    long as before. Told apart only where the number of batches at least doubles or halves.
    """
    old, new = (run.effects.accumulation or 1.0 for run in ends(compared))
    lengths = [updates_of(run).gradient for run in (*compared.originals, compared.after)]
    sums = [sum(losses_of(run)[: policy.FEWEST_UPDATES]) for run in ends(compared)]
    if max(old, new) < 2 * min(old, new) or not all(lengths) or not all(sums):
        return False
    before, after = (float(length or 0) for length in lengths[-2:])
    alike = max(before, after) < policy.GRADIENT_TIE * min(before, after)
    return alike and abs(sums[1] * old / (sums[0] * new) - 1) <= policy.SUMS_TIE


def is_repeatable(
    compared: Compared, losses: Sequence[Sequence[float]], *, padded: bool = False
) -> bool:
    """True if equal runs have equal losses, and this one had the same items without other draws.

    Its losses then have to be the same: nothing but the batch is another. A single original is
    taken to repeat itself: it had the same items, and drew nothing that could differ. Items that
    may be `padded` to the longest of their batch are known by their indices.
    """
    runs = (*compared.originals, compared.after)
    drawn = any(loader_of(run).draws is not False for run in runs)
    by_index = padded and not any(map(draws_for_items, runs))
    came = {first_items(run, "drawn" if by_index else "came").first for run in runs}
    samples = [update_samples(run) or 0.0 for run in runs]
    smallest, largest = min(samples), max(samples)
    as_many = smallest > 0 and largest - smallest <= policy.SAMPLES_TIE * smallest
    if not losses or drawn or len(came) != 1 or came == {()} or not as_many:
        return False
    return all(distance(run, losses[0]) <= policy.EQUAL_RUNS_TIE for run in losses[1:])


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Relative difference of the first losses, update by update: the root of its mean square."""
    usual = fmean(map(abs, other)) or 1.0
    squares = [(a - b) ** 2 for a, b in zip(one, other, strict=False)]
    return math.sqrt(fmean(squares[: policy.FEWEST_UPDATES])) / usual
