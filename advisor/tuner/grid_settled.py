"""What came of a search over batch and workers: a value to be proven, advice, or neither."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.executor.requests import Variant
from advisor.knobs.tree import number_of
from advisor.tuner import effects
from advisor.tuner.cells import GridPoint, GridState, inside, smallest_level, worth
from advisor.tuner.facts import Suggestion
from advisor.tuner.standing import TunerState, change_of, key_of

if TYPE_CHECKING:
    from advisor.model import Candidate, Run
    from advisor.tuner.surface import Surface

RULES = (("sgd", "linear", 1.0), ("adam", "square root", 0.5))
"""Part of an optimizer's name, the rule for it, and its power of the growth of the batch."""
OWN_STEPS = ("backward", "gradients", "moved", "asked")
"""Signs of a training without an optimizer of torch's."""


def settle_grid(now: TunerState, found: GridState, surface: Surface) -> TunerState:
    """The smallest cell that ties with the fastest; where the config stands if that is one."""
    allowed = inside(now, found) or [found.start]
    smooth = {cell: worth(now, surface, cell, ran=True) for cell in {*allowed, found.start}}
    apart = [c for c in allowed if found.batch and alters_training(now, *found.runs[c])]
    hopeful = [c for c in allowed if found.start not in allowed or not_slower(now, found, c)]
    plain = [cell for cell in hopeful if cell not in apart] or [found.start]
    chosen = smallest_level(now, found, {cell: smooth[cell] for cell in plain})
    least = math.log1p(now.facts.smallest_gain)
    gained = smooth[chosen].log_rate - smooth[found.start].log_rate
    if found.start in allowed and gained <= least:
        chosen = found.start
    candidate, run = found.runs[chosen]
    now = now.adopt(candidate, run) if chosen != found.start else now
    if found.batch is not None:
        now = settle_batch(now, found, chosen)
    now = settle_workers(now, found, chosen)
    apart = [cell for cell in apart if cell in hopeful]
    if not apart:
        return now
    other = smallest_level(now, found, {cell: smooth[cell] for cell in apart})
    better = smooth[other].log_rate - smooth[chosen].log_rate > least
    return propose(now, found, other) if better or chosen not in allowed else now


def not_slower(now: TunerState, found: GridState, cell: GridPoint) -> bool:
    """Whether its own run did at least what the start usually does: what a fit alone speaks for is
    not worth a proof."""
    return cell == found.start or now.gain_over_usual(found.runs[cell][1]) >= 1


def settle_batch(now: TunerState, found: GridState, chosen: GridPoint) -> TunerState:
    """What became of the batch, and what ended its search."""
    assert found.batch is not None
    key, facts = key_of(found.batch), dict(found.stop)
    if chosen[0] != found.batch.value:
        return now.settle(key, "found", "batch", **facts)
    if len(found.runs) == 1 and found.stop == (("stop", "budget"),):
        return now if now.word_on(found.batch) else now.settle(key, "skipped", "budget")
    return now.settle(key, "kept", "batch-flat", band=now.band, **facts)


def settle_workers(now: TunerState, found: GridState, chosen: GridPoint) -> TunerState:
    """What became of the workers; silence where there was nothing to wait for."""
    if found.workers is None:
        return now
    key = key_of(found.workers)
    tried_counts = {cell[1] for cell in found.runs} - {found.start[1]}
    if chosen[1] != found.workers.value:
        return now.settle(key, "found", "loader")
    if tried_counts:
        return now.settle(key, "kept", "tie", band=now.band)
    if now.waits and now.skipped:
        return now.settle(key, "skipped", "budget")
    return now


def propose(now: TunerState, found: GridState, chosen: GridPoint) -> TunerState:
    """A batch that changes how the model is trained is advised."""
    assert found.batch is not None
    candidate, run = found.runs[chosen]
    key = key_of(found.batch)
    times = grown(candidate) or 1.0
    seen = now.original.effects
    proposal = Suggestion(
        kind="training-batch",
        title=f"{found.batch.path}: {found.batch.value} to {chosen[0]}",
        variant=Variant(candidate=candidate),
        run=run,
        gain=now.gain_over_usual(run),
        data=(
            ("from", found.start[0]),
            ("to", chosen[0]),
            ("times", times),
            ("trains", sign(now)),
            ("optimizer", ", ".join(seen.optimizers) or None),
        ),
        knob=key,
    )
    others = tuple(p for p in now.proposals if p.knob != key)
    now = replace(now, proposals=(*others, proposal))
    if change_of(now.best, key) is not None:
        return now
    return now.settle(key, "advised", "training-batch", **dict(proposal.data))


def rule_for(optimizer: str) -> tuple[str, float] | None:
    """Name and power of the rule for the learning rate; None for an optimizer without one."""
    name = optimizer.lower()
    return next(((rule, power) for part, rule, power in RULES if part in name), None)


def alters_training(now: TunerState, candidate: Candidate, run: Run) -> bool:
    """Whether the program trains and `candidate`, as it ran, moves its effective batch.

    An accumulation that moves along makes up for it, unless it cannot wholly or the program was
    seen not to follow; of one that steps by itself it must be seen that it does.
    """
    if not (now.trains or run.trains) or all(c.kind != "batch_size" for c in candidate.changes):
        return False
    along = [change for change in candidate.changes if change.kind == "grad_accum"]
    doubt = {"ignored", "unknown"} if run.effects.trains in OWN_STEPS else {"ignored"}
    if not along or any(effects.verdict(c, now.original, run) in doubt for c in along):
        return True
    return (grown(candidate) or 1.0) > 1.0


def grown(candidate: Candidate) -> float | None:
    """How many times the samples of one update it has, by what it sets: batch and accumulation;
    None where that is not all in numbers."""
    times = 1.0
    for change in candidate.changes:
        if change.kind in {"batch_size", "grad_accum"}:
            old, new = number_of(change.old), number_of(change.new)
            if not old or not new:
                return None
            times *= new / old
    return times


def sign(now: TunerState) -> str | None:
    """What was seen that speaks for a training, where no optimizer of torch's stepped."""
    told = now.original.effects.trains
    unseen = "unseen" if now.original.unseen else None
    return told if told in OWN_STEPS else unseen
