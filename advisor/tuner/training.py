"""Batches of a training: samples of an update, and the learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs, numbers
from advisor.knobs.tree import number_of
from advisor.tuner import effects

if TYPE_CHECKING:
    from advisor.model import Candidate, Knob, Run
    from advisor.tuner.state import TunerState

MAY_TRAIN = (
    "No optimizer of torch's was seen to step, so it may train; where it does not, say "
    '`phase = "test"` in gpu-advisor.toml. '
)
RULES = (("sgd", 1.0), ("adam", 0.5))
"""Part of an optimizer's name, and the power of the batch that its learning rate follows."""


def is_only_suggested(state: TunerState, knob: Knob) -> bool:
    """True if a larger batch would change the samples of each update."""
    value = state.current(knob)
    if not state.trains or not isinstance(value, int):
        return False
    larger = state.with_value(knob, 2 * value)
    return not isinstance(larger, knobs.InvalidChange) and all(
        change.kind != "grad_accum" for change in larger.changes
    )


def alters_training(state: TunerState, candidate: Candidate, run: Run) -> bool:
    """True if `candidate` changes the samples of an update.

    An accumulation that moves along makes up for it, if the program was seen to follow it. Where
    torch's optimizer steps, it also counts where nothing could be seen.
    """
    if not (state.trains or run.trains) or all(c.kind != "batch_size" for c in candidate.changes):
        return False
    along = [change for change in candidate.changes if change.kind == "grad_accum"]
    certain = run.effects.trains in {None, "optimizer"}
    followed = {"took effect", "unknown"} if certain else {"took effect"}
    if not along or any(effects.verdict(c, state.original, run) not in followed for c in along):
        return True
    return samples_per_update(candidate) > 1.0


def samples_per_update(candidate: Candidate) -> float:
    """Growth of the samples of one update; 1 where that is not all in numbers."""
    times = 1.0
    for change in candidate.changes:
        if change.kind in {"batch_size", "grad_accum"}:
            old, new = number_of(change.old), number_of(change.new)
            if not old or not new:
                return 1.0
            times *= new / old
    return times


def training_note(state: TunerState, times: float) -> str:
    """Advice on the learning rate of a batch that is `times` as large."""
    names = state.original.effects.optimizers
    powers = {power for name in names for part, power in RULES if part in name.lower()}
    linear, root = (f"{numbers.measure(times**power, 3)} times" for power in (1.0, 0.5))
    rate = f"{linear} the rate with SGD, at {root} with Adam"
    if len(powers) == 1:
        rate = f"{linear if powers == {1.0} else root} the rate with {', '.join(names)}"
    return (
        f"{'' if any(run.updates for run in state.originals) else MAY_TRAIN}"
        f"One update would average over {linear} the samples. The learning rate and its schedule "
        f"have to follow: people start at {rate}; that was not tried here."
    )
