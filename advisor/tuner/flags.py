"""Switches that a config holds: each is moved on top of the best.

Most are put on, behind the declared guard: they change rounding at most, and which of them helps
depends on the model and the card. What saves memory for time is taken off where the memory is
there, and changes no result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.tuner import results
from advisor.tuner.asking import ask_for, tried
from advisor.tuner.loader import settle_ignored, unfollowed
from advisor.tuner.precision import try_guarded
from advisor.tuner.standing import key_of

if TYPE_CHECKING:
    from advisor.model import Knob
    from advisor.tuner.asking import Stage
    from advisor.tuner.standing import TunerState

ON_GPU = ("cudnn_benchmark", "channels_last", "tf32")
FLAGS = (*ON_GPU, "compile")
"""Kinds of knobs, in the order in which they are tried: what costs least first."""
PLAIN_ATTENTION = {"eager": "sdpa"}
"""Attention that writes its scores to memory, and the form of torch that does not."""


def tune_flags(now: TunerState) -> Stage:
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
    for knob in now.tunable("attention_impl"):
        quicker = PLAIN_ATTENTION.get(str(knob.value))
        if quicker is None:
            now = now.settle(key_of(knob), "kept", "no-quicker-attention")
        elif not now.facts.consents:
            now = now.settle(key_of(knob), "listed", "no-tolerance", values=quicker)
        else:
            now = yield from try_guarded(now, knob, [quicker], "attention")
    return now


def tune_memory_savers(now: TunerState) -> Stage:
    """Activations that are computed twice to save memory: kept instead, where they fit."""
    for knob in now.tunable("grad_checkpoint"):
        key = key_of(knob)
        if knob.value is False:
            now = now.settle(key, "kept", "saves-memory-only")
        elif knob.value is not True:
            now = now.settle(key, "listed", "no-plain-flag")
        elif not now.front.effects.recomputes:
            now = now.settle(key, "kept", "nothing-twice")
        else:
            now = yield from without(now, knob)
    return now


def without(now: TunerState, knob: Knob) -> Stage:
    """The best with `knob` taken off, if that is faster and fits into the memory."""
    start, key = now.front, key_of(knob)
    candidate = now.with_value(knob, False)
    if isinstance(candidate, knobs.InvalidChange):
        return now.settle(key, "refused", "refused", why=candidate.reason)
    now, attempt = yield from tried(now, ask_for(now, candidate, knob=knob))
    if attempt is None:
        return now.settle(key, "skipped", "budget")
    run = attempt.run
    if run is None or (run.held_gib or 0.0) > now.facts.memory_limit_gib:
        return now.settle(key, "kept", "needed-for-memory")
    if unfollowed(knob, candidate, start, run):
        return settle_ignored(now, knob, candidate, run)
    if results.lost(now.originals, run) or not now.faster(run, start):
        return now.settle(key, "kept", "tie", band=now.band)
    return now.adopt(candidate, run).settle(key, "found", "memory-for-time")
