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
    known = [losses_of(run) for run in (*compared.originals, compared.after)]
    if is_divided_at_the_update(compared):
        runs = (*compared.originals, compared.after)
        known = [
            [loss / (run.effects.accumulation or 1) for loss in losses]
            for run, losses in zip(runs, known, strict=True)
        ]
    size = min(map(len, known))
    if not any(known) and len(updates_of(compared.after).rates) >= policy.FEWEST_UPDATES:
        why = "No loss of an update was seen, so nothing tells whether it depends on the batch."
        yield suggested("loss-of-update", why)
    if size < policy.FEWEST_UPDATES:
        return
    *old, new = [each[:size] for each in known]
    if is_repeatable(compared, old):
        moved = distance(new, old[0])
        if moved > policy.SAME_ITEMS_TIE:
            yield suggested(
                "loss-of-update",
                f"Of the same items, the first updates' losses differ by {numbers.percent(moved)}: "
                "the loss of an update depends on its batches.",
            )
        return
    means = [fmean(each) for each in old]
    usual = [fmean(each) for each in zip(*old, strict=True)]
    error = math.sqrt((stdev(usual) ** 2 + stdev(new) ** 2) / size)
    before, after = ends(compared)
    if first_items(before, "drawn").first == first_items(after, "drawn").first != ():
        apart = [one - other for one, other in zip(new, usual, strict=True)]
        error = stdev(apart) / math.sqrt(size)  # of the same items, update by update
    chance = policy.LOSS_SIGMAS * error
    allowed = max(policy.LOSS_TIE * abs(fmean(means)), chance) + max(means) - min(means)
    if abs(fmean(new) - fmean(means)) > allowed:
        shown = f"{fmean(new):.3g} where it was {fmean(means):.3g}"
        yield suggested("loss-of-update", f"The first updates have a loss of {shown}.")


def other_gradients(compared: Compared) -> Differences:
    """Other gradients of the same items, though their losses are alike.

    A mean over the tokens of a batch weighs texts by their neighbours, and hardly shows in a loss.
    """
    if not moved_batch(compared):
        return
    runs = (*compared.originals, compared.after)
    losses = [losses_of(run) for run in runs]
    *old, new = (updates_of(run).gradients[:1] for run in runs)
    if not all((*old, new)) or not is_repeatable(compared, losses[:-1], padded=True):
        return
    if any(apart(each[0], old[0][0]) > policy.EQUAL_RUNS_TIE for each in old):
        return
    moved = apart(new[0], old[0][0])
    if moved > policy.SAME_GRADIENT_TIE:
        why = f"Of the same items, the gradients differ by {numbers.percent(moved)}"
        yield suggested("loss-of-update", f"{why}: the loss depends on its batches.")


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """Distance of two gradients over the length of the other; 0 if they are not comparable."""
    length = math.hypot(*other)
    return math.dist(one, other) / length if length and len(one) == len(other) else 0.0


def losses_of(run: Run) -> Sequence[float]:
    return updates_of(run).losses


def mixed_losses(compared: Compared) -> Differences:
    """A loss that holds the items of a batch against each other."""
    runs = (*compared.originals, compared.after)
    if moved_batch(compared) and any(updates_of(run).mixes for run in runs):
        why = "The loss of an item depends on the others of its batch."
        yield suggested("loss-of-update", why)


def is_divided_at_the_update(compared: Compared) -> bool:
    """True if gradients of equal length come of summed losses: they are divided in between.

    The losses of an update are then as many times larger as there are batches in it.
    """
    old, new = (run.effects.accumulation or 1.0 for run in ends(compared))
    lengths = [updates_of(run).gradient for run in (*compared.originals, compared.after)]
    sums = [sum(losses_of(run)[: policy.FEWEST_UPDATES]) for run in ends(compared)]
    if max(old, new) < 2 * min(old, new) or not all(lengths) or not all(sums):
        return False
    *known, length = (float(each or 0) for each in lengths)
    alike = max(known[-1], length) < policy.GRADIENT_TIE * min(known[-1], length)
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
    as_many = min(samples) > 0 and max(samples) - min(samples) <= policy.SAMPLES_TIE * min(
        samples
    )
    if not losses or drawn or len(came) != 1 or came == {()} or not as_many:
        return False
    return all(distance(each, losses[0]) <= policy.EQUAL_RUNS_TIE for each in losses[1:])


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Relative difference of losses update by update, as the root of its mean square."""
    usual = fmean(map(abs, other)) or 1.0
    squares = [(a - b) ** 2 for a, b in zip(one, other, strict=False)]
    return math.sqrt(fmean(squares[: policy.FEWEST_UPDATES])) / usual
