"""Trials of one knob's values, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import Variant
from advisor.knobs import precision_choices
from advisor.knobs.registry import LOADER_ARGUMENTS, loader_arguments
from advisor.tuner.effects import is_ignored, set_ignored
from advisor.tuner.quality_gate import passes_gate
from advisor.tuner.search import plain_reason, unusable
from advisor.tuner.state import (
    OUT_OF_TIME,
    Stage,
    TunerState,
    change_of,
    key_of,
    make_request,
    run_trial,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Candidate, JsonScalar, Knob, Run

FLAGS = ("cudnn_benchmark", "channels_last", "tf32", "compile")
"""Kinds of flags, the cheapest first; all but the last act on a GPU only."""
PLAIN_ATTENTION = {"eager": "sdpa"}
"""Attention that writes its scores to memory, and torch's form that does not."""
PRECISION_ORDER = ("bfloat16", "float16")
"""Precisions by how safely a program computes in them."""
NO_PLAIN_FLAG = "It is no plain true or false, so it is left as it is."


def try_values(
    state: TunerState,
    knob: Knob,
    values: Sequence[JsonScalar],
    *,
    gated: bool = False,
    whole_batches: int = 0,
) -> Stage:
    """Try each value; keep the smallest that ties with the fastest.

    Gated: the first value that is faster inside the declared tolerance. The program ignores the
    knob only if no value had an effect.
    """
    start, key, before = state.incumbent_run, key_of(knob), state.verdict_on(knob)
    faster: list[tuple[JsonScalar, Candidate, Run]] = []
    ignored: tuple[Candidate, Run] | None = None
    followed, seen = False, ""
    for value in values:
        candidate = state.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            state = state.set_verdict(key, "refused", f"{plain_reason(candidate)}.")
            continue
        request = make_request(state, candidate, moved=(key,), whole_batches=whole_batches)
        state, trial = yield from run_trial(state, request)
        if trial is None:
            if not (ignored or followed or before):
                return state.set_verdict(key, "skipped", OUT_OF_TIME)
            break
        run = trial.run
        if run is not None and is_ignored(knob, candidate, start, run):
            ignored = candidate, run
            continue
        followed = True
        if run is None or not state.is_faster(run, start):
            continue
        if why := unusable(state, run):
            seen = f" and usable: {value} {why}"
            continue
        if not gated:
            faster.append((value, candidate, run))
            continue
        state, verdict = yield from passes_gate(state, Variant(candidate=candidate), run)
        if verdict.inside:
            reason = f"Inside its tolerance{verdict.figures}."
            return state.adopt(candidate, run).set_verdict(key, "found", reason)
        seen = f" inside its tolerance{verdict.figures}. {verdict.why}".rstrip(". ")
    if ignored and not followed:
        return set_ignored(state, knob, *ignored)
    unchanged = f"No value tested was faster by more than {state.tie_percent}{seen}."
    if not faster:
        kept = not followed or (before is not None and before.outcome == "found")
        return state if kept else state.set_verdict(key, "kept", unchanged)
    objective = state.context.objective
    top = objective.score(objective.best([run for _, _, run in faster]))
    _, candidate, run = min(
        (
            each
            for each in faster
            if objective.gain(objective.score(each[2]), top) <= 1 + state.level_threshold
        ),
        key=lambda each: each[0] if isinstance(each[0], (int, float)) else 0.0,
    )
    state = state.adopt(candidate, run)
    if change_of(candidate, key) is None:  # back to the config's own value
        return state.set_verdict(key, "kept", unchanged)
    reason = f"Faster by itself by more than {state.tie_percent}; the smallest value that was."
    return state.set_verdict(key, "found", reason)


# --- free knobs ---------------------------------------------------------------------------------


def tune_loader(state: TunerState) -> Stage:
    """Tune loader arguments except the workers, where the program waits for data."""
    for argument in LOADER_ARGUMENTS if state.waits else ():
        for knob in state.tunable(argument.kind) if argument.candidates else []:
            effects = state.incumbent_run.effects
            if "workers" in argument.needs and not effects.workers:
                continue
            if "gpu" in argument.needs and not state.context.has_gpu:
                continue
            values = argument.values_to_try(state.current(knob), argument.observed(effects))
            state = yield from try_values(state, knob, values)
    return state


def explain_loader(state: TunerState) -> Stage:
    """Set a verdict on each untried loader knob."""
    yield from ()
    for knob in state.of_kind(*loader_arguments()):
        if state.verdict_on(knob) is None and knob.editable:
            reason = "No other value was tried with a gain."
            if not state.waits:
                reason = "The program hardly waits for data, so no loader setting can gain."
            state = state.set_verdict(key_of(knob), "kept", reason)
    return state


def tune_memory_savers(state: TunerState) -> Stage:
    """Try to switch off what computes activations twice to save memory."""
    for knob in state.tunable("grad_checkpoint"):
        if knob.value is True and state.incumbent_run.effects.recomputes:
            state = yield from try_values(state, knob, [False])
            continue
        reason = "Nothing was seen to be computed twice by torch, so off is no faster."
        state = state.set_verdict(key_of(knob), "kept", reason)
    return state


# --- precision and flags ------------------------------------------------------------------------


def tune_precision(state: TunerState) -> Stage:
    """Tune the precision within the declared tolerance."""
    for knob in state.tunable("precision"):
        spelled = {d: v for d, v in precision_choices(knob).items() if v != knob.value}
        there = {d: v for d, v in spelled.items() if d in state.context.precisions}
        order = [d for d in PRECISION_ORDER if d in there]
        order += [d for d in there if d not in order]
        if there:
            values = list(dict.fromkeys(there[dtype] for dtype in order))
            state = yield from try_with_consent(state, knob, values)
            continue
        if isinstance(knob.value, bool) and len(spelled) > 1:
            asked = "Switched on, it leaves the dtype to the program"
        else:
            asked = ", ".join(f"{value!r} asks for {dtype}" for dtype, value in spelled.items())
        here = ", ".join(state.context.precisions)
        reason = f"{asked or 'No narrower value is known'}; this target computes in {here}."
        state = state.set_verdict(key_of(knob), "kept", reason)
    return state


def tune_flags(state: TunerState) -> Stage:
    """Every plain flag that is off, then plain attention."""
    for kind in FLAGS:
        for knob in state.tunable(kind):
            reason = "" if knob.value is False else NO_PLAIN_FLAG
            if knob.value is True:
                reason = "It is on already."
            elif kind != "compile" and not state.incumbent_run.on_gpu:
                reason = "It does something on a GPU only, and the model is not on one."
            if reason:
                state = state.set_verdict(key_of(knob), "kept", reason)
            else:
                state = yield from try_with_consent(state, knob, [True])
    for knob in state.tunable("attention_impl"):
        quicker = PLAIN_ATTENTION.get(str(knob.value))
        if quicker is not None:
            state = yield from try_with_consent(state, knob, [quicker])
    return state


def try_with_consent(state: TunerState, knob: Knob, values: Sequence[JsonScalar]) -> Stage:
    """Try values that change rounding, if the user declared a tolerance."""
    if state.context.consents:
        return (yield from try_values(state, knob, values, gated=True))
    names = ", ".join(str(value) for value in values)
    reason = (
        f"{names} not tried: no numeric-tolerance or quality measure is declared for this workload "
        "in gpu-advisor.toml."
    )
    return state.set_verdict(key_of(knob), "listed", reason)
