"""Switches that a config holds: each is put on, on top of the best, behind the declared guard.

They change rounding at most; which of them helps depends on the model and the card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.strategy.precision import try_guarded
from advisor.strategy.standing import key_of

if TYPE_CHECKING:
    from advisor.strategy.standing import Stage, Standing

ON_GPU = ("cudnn_benchmark", "channels_last", "tf32")
FLAGS = (*ON_GPU, "compile")
"""Kinds of knobs, in the order in which they are tried: what costs least first."""


def tune_flags(now: Standing) -> Stage:
    """Every plain flag of these kinds that is off."""
    for kind in FLAGS:
        for knob in now.tunable(kind):
            key = key_of(knob)
            if knob.value is not False:
                word = "flag-on" if knob.value is True else "no-plain-flag"
                now = now.settle(key, "kept" if knob.value is True else "listed", word)
            elif kind in ON_GPU and not now.front.on_gpu:
                now = now.settle(key, "kept", "flag-without-gpu")
            elif not now.facts.consents:
                now = now.settle(key, "listed", "no-tolerance", values="true")
            else:
                now = yield from try_guarded(now, knob, [True], "flag")
    return now
