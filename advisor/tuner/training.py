"""Training batches: samples of an update and learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs, numbers
from advisor.knobs.tree import number_of
from advisor.tuner import effects

if TYPE_CHECKING:
    from advisor.model import Candidate, Knob, Run
    from advisor.tuner.state import TunerState

OWN_STEPS = {
    "backward": "It trains by steps of its own: backward passes were seen, and no optimizer of "
    "torch's. ",
    "gradients": "It trains by steps of its own: gradients of its parameters were taken, and no "
    "optimizer of torch's stepped. ",
    "moved": "Its parameters changed while it ran, so it trains. ",
    "asked": "It takes gradients, so it may train. ",
}
"""Signs of a training without an optimizer of torch's, and their sentences."""
UNSEEN = (
    "Nothing was seen of its model, so it may train; where it does not, say "
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

    An accumulation that moves along makes up for it, unless the program did not follow it. Where
    the program steps by itself that must have been seen.
    """
    if not (state.trains or run.trains) or all(c.kind != "batch_size" for c in candidate.changes):
        return False
    along = [change for change in candidate.changes if change.kind == "grad_accum"]
    doubt = {"ignored", "unknown"} if run.effects.trains in OWN_STEPS else {"ignored"}
    if not along or any(effects.verdict(c, state.original, run) in doubt for c in along):
        return True
    return (samples_per_update(candidate) or 1.0) > 1.0


def samples_per_update(candidate: Candidate) -> float | None:
    """Growth of the samples of one update.

    None where that is not all in numbers.
    """
    times = 1.0
    for change in candidate.changes:
        if change.kind in {"batch_size", "grad_accum"}:
            old, new = number_of(change.old), number_of(change.new)
            if not old or not new:
                return None
            times *= new / old
    return times


def training_sign(state: TunerState) -> str:
    """Sentence on a sign of training without torch's optimizer."""
    seen = str(state.original.effects.trains)
    return OWN_STEPS.get(seen, UNSEEN if state.original.unseen else "")


def learning_rate_advice(state: TunerState, times: float) -> str:
    """Advice on the learning rate of a larger batch."""
    linear = f"{numbers.measure(times, 3)} times"
    root = f"{numbers.measure(times**0.5, 3)} times (the square root)"
    names = state.original.effects.optimizers
    powers = {power for name in names for part, power in RULES if part in name.lower()}
    change = (
        f"It changes how the model is trained: one update averages over {linear} the samples, and "
        "an epoch has fewer updates. The learning rate and its schedule have to follow. "
    )
    if len(powers) != 1:
        return (
            f"{change}People start at {linear} the rate with SGD, at {root} with Adam; neither "
            "was tried here."
        )
    start = linear if powers == {1.0} else root
    return (
        f"{change}It steps with {', '.join(names)}, so people start at {start} the rate; that was "
        "not tried here."
    )
