"""Precision: only what exists on the target, and only behind the guard the user declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import Variant
from advisor.knobs import precision_choices
from advisor.knobs.candidate_values import row_of
from advisor.tuner.asking import Stage, ask_for, tried
from advisor.tuner.loader import settle_ignored, unfollowed
from advisor.tuner.rounding import within
from advisor.tuner.standing import TunerState, key_of

if TYPE_CHECKING:
    from advisor.model import JsonScalar, Knob
    from advisor.tuner.facts import Data


def tune_precision(now: TunerState) -> Stage:
    """Precisions that exist on the target, behind the guard the user declared."""
    for knob in now.tunable("precision"):
        key = key_of(knob)
        spelled = {d: v for d, v in precision_choices(knob).items() if v != knob.value}
        choices = {d: v for d, v in spelled.items() if d in now.facts.precisions}
        if not spelled:
            now = now.settle(key, "kept", "no-narrower-precision")
        elif not choices:
            asked = ", ".join(f"{value!r} asks for {dtype}" for dtype, value in spelled.items())
            there = {"float32", row_of(knob.value)[1]}
            here = ", ".join(dtype for dtype in now.facts.precisions if dtype not in there)
            reason = "precision-not-here" if here else "no-precision-here"
            now = now.settle(key, "kept", reason, asked=asked, here=here)
        elif not now.facts.consents:
            names = ", ".join(str(value) for value in choices.values())
            now = now.settle(key, "listed", "no-tolerance", values=names)
        else:
            now = yield from try_guarded(
                now, knob, list(dict.fromkeys(choices.values())), "precision"
            )
    return now


def try_guarded(now: TunerState, knob: Knob, values: list[JsonScalar], what: str) -> Stage:
    """Each value on top of the best; the first that is faster and inside the guard stays.

    `what` is the kind of value, by which the report finds its sentences.
    """
    start, key, ran = now.front, key_of(knob), 0
    seen: Data = ()
    for value in values:
        candidate = now.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            now = now.settle(key, "refused", "refused", why=candidate.reason)
            continue
        now, attempt = yield from tried(now, ask_for(now, candidate, knob=knob))
        if attempt is None:
            if not ran:
                return now.settle(key, "skipped", "budget")
            break
        ran += 1
        run = attempt.run
        if run is None:
            continue
        if unfollowed(knob, candidate, start, run):
            return settle_ignored(now, knob, candidate, run)
        if not now.faster(run, start):
            continue
        now, inside, seen = yield from within(now, Variant(candidate=candidate), run)
        if inside:
            return now.adopt(candidate, run).settle(key, "found", what, **dict(seen))
    if not ran:
        return now
    return now.settle(key, "kept", f"no-{what}-inside", **dict(seen))
