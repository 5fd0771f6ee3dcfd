"""Trials of one knob's values, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import Variant
from advisor.knobs import precision_choices
from advisor.knobs.candidate_values import row_of
from advisor.knobs.registry import LOADER_ARGUMENTS, REGISTRY, loader_arguments
from advisor.tuner.effects import is_ignored, set_ignored
from advisor.tuner.output_check import output_regression
from advisor.tuner.quality_gate import Verdict, passes_gate
from advisor.tuner.search import OUT_OF_TIME, percent, plain_reason
from advisor.tuner.state import Stage, TunerState, change_of, key_of, make_request, run_trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Candidate, JsonScalar, Knob, Run

ON_GPU = ("cudnn_benchmark", "channels_last", "tf32")
FLAGS = (*ON_GPU, "compile")
"""Kinds of flags, the cheapest first."""
PLAIN_ATTENTION = {"eager": "sdpa"}
"""Attention that writes its scores to memory, and torch's form that does not."""
PRECISION_ORDER = ("bfloat16", "float16")
"""Precisions by how safely a program computes in them."""
NO_CONSENT = (
    "{values} not tried: no numeric-tolerance or quality measure is declared for this workload in "
    "gpu-advisor.toml."
)


# --- loader arguments ---------------------------------------------------------------------------


def tune_loader(state: TunerState) -> Stage:
    """Tune loader arguments except the workers."""
    for argument in LOADER_ARGUMENTS:
        for knob in state.tunable(argument.kind) if argument.candidates else []:
            effects = state.incumbent_run.effects
            if "workers" in argument.needs and not effects.workers:
                continue
            if "gpu" in argument.needs and not state.context.has_gpu:
                continue
            observed = argument.observed(effects)
            values = argument.values_to_try(state.current(knob), observed)
            state = yield from try_values(state, knob, values[: max(1, state.trials_left // 2)])
    return state


def try_values(state: TunerState, knob: Knob, values: Sequence[JsonScalar]) -> Stage:
    """Try each value; keep the smallest of the fastest."""
    start, key = state.incumbent_run, key_of(knob)
    ran: list[tuple[JsonScalar, Candidate, Run]] = []
    fits = True
    for value in values:
        candidate = state.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            state = set_refused(state, knob, candidate)
            continue
        state, trial = yield from run_trial(state, make_request(state, candidate, moved=(key,)))
        fits = trial is not None
        if trial is None:
            break
        run = trial.run
        if run is None:
            continue
        if is_ignored(knob, candidate, start, run):
            return set_ignored(state, knob, candidate, run)
        if not output_regression(state.originals, run):
            ran.append((value, candidate, run))
    verdict = state.verdict_on(knob)
    if not ran:
        known = fits or verdict is not None
        return state if known else state.set_verdict(key, "skipped", OUT_OF_TIME)
    fastest = smallest_of_fastest(state, start, ran)
    unchanged = f"No value tested was faster by more than {percent(state)}."
    if fastest is None:
        if verdict is not None and verdict.outcome == "found":
            return state  # an earlier pass found a value, and nothing is better
        return state.set_verdict(key, "kept", unchanged)
    candidate, run = fastest
    state = state.adopt(candidate, run)
    if change_of(candidate, key) is None:  # back to the config's own value
        return state.set_verdict(key, "kept", unchanged)
    reason = f"Faster by itself by more than {percent(state)}; the smallest value that was."
    return state.set_verdict(key, "found", reason)


def smallest_of_fastest(
    state: TunerState, start: Run, ran: Sequence[tuple[JsonScalar, Candidate, Run]]
) -> tuple[Candidate, Run] | None:
    """Smallest value that ties with the fastest."""
    objective = state.context.objective
    top = objective.score(objective.best([run for _, _, run in ran]))
    level = [
        each
        for each in ran
        if objective.gain(objective.score(each[2]), top) <= 1 + state.level_threshold
        and state.is_faster(each[2], start)
    ]
    if not level:
        return None
    _, candidate, run = min(level, key=lambda each: _size(each[0]))
    return candidate, run


def _size(value: JsonScalar) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def set_refused(state: TunerState, knob: Knob, why: knobs.InvalidChange) -> TunerState:
    """With the verdict that a linked setting refuses the value."""
    return state.set_verdict(key_of(knob), "refused", f"{plain_reason(why.reason)}.")


def explain_loader(state: TunerState) -> TunerState:
    """Set a verdict on each untried loader knob."""
    for knob in state.of_kind(*loader_arguments()):
        key = key_of(knob)
        if state.verdict_on(knob) is not None:
            continue
        if not knob.editable:
            state = state.set_verdict(key, "refused", f"Left as it is: {knob.why}.")
        elif "gpu" in REGISTRY[knob.kind].needs and not state.context.has_gpu:
            reason = "Pinned memory only helps copies to a GPU; none is here."
            state = state.set_verdict(key, "kept", reason)
        elif state.waits:
            state = state.set_verdict(key, "kept", "No other value was tried with a gain.")
        else:
            reason = "The program hardly waits for data, so no loader setting can gain."
            state = state.set_verdict(key, "kept", reason)
    return state


# --- memory for time ----------------------------------------------------------------------------


def tune_memory_savers(state: TunerState) -> Stage:
    """Try to switch off memory savers.

    They compute activations twice to save memory.
    """
    for knob in state.tunable("grad_checkpoint"):
        key = key_of(knob)
        if knob.value is False:
            reason = "Off already: on, it saves memory and costs time."
            state = state.set_verdict(key, "kept", reason)
        elif knob.value is not True:
            state = state.set_verdict(key, "listed", NO_PLAIN_FLAG)
        elif not state.incumbent_run.effects.recomputes:
            reason = "It is on, but nothing was seen to be computed twice by torch."
            state = state.set_verdict(key, "kept", reason)
        else:
            state = yield from switch_off(state, knob)
    return state


NO_PLAIN_FLAG = "It is no plain true or false, so it is left as it is."


def switch_off(state: TunerState, knob: Knob) -> Stage:
    """Switch `knob` off, if that is faster and fits."""
    start, key = state.incumbent_run, key_of(knob)
    candidate = state.with_value(knob, False)
    if isinstance(candidate, knobs.InvalidChange):
        return set_refused(state, knob, candidate)
    state, trial = yield from run_trial(state, make_request(state, candidate, moved=(key,)))
    if trial is None:
        return state.set_verdict(key, "skipped", OUT_OF_TIME)
    run = trial.run
    if run is None or (run.held_gib or 0.0) > state.context.memory_limit_gib:
        reason = "Without it the run did not fit into the memory, or failed."
        return state.set_verdict(key, "kept", reason)
    if is_ignored(knob, candidate, start, run):
        return set_ignored(state, knob, candidate, run)
    if output_regression(state.originals, run) or not state.is_faster(run, start):
        reason = f"Off, it was not faster by more than {percent(state)}."
        return state.set_verdict(key, "kept", reason)
    reason = "Nothing is computed twice any more, as the memory is there."
    return state.adopt(candidate, run).set_verdict(key, "found", reason)


# --- precision and flags ------------------------------------------------------------------------


def tune_precision(state: TunerState) -> Stage:
    """Tune the precision within the declared tolerance."""
    for knob in state.tunable("precision"):
        key = key_of(knob)
        spelled = {d: v for d, v in precision_choices(knob).items() if v != knob.value}
        choices = {d: v for d, v in spelled.items() if d in state.context.precisions}
        if not spelled:
            reason = "No narrower precision of this spelling is known."
            state = state.set_verdict(key, "kept", reason)
        elif not choices:
            state = state.set_verdict(key, "kept", precision_not_here(state, knob, spelled))
        elif not state.context.consents:
            names = ", ".join(str(value) for value in choices.values())
            state = state.set_verdict(key, "listed", NO_CONSENT.format(values=names))
        else:
            order = [d for d in PRECISION_ORDER if d in choices]
            order += [d for d in choices if d not in order]
            values = [choices[dtype] for dtype in order]
            none = "No other precision was faster inside its tolerance"
            state = yield from try_gated(state, knob, values, none)
    return state


def precision_not_here(state: TunerState, knob: Knob, spelled: dict[str, JsonScalar]) -> str:
    """Sentence on precisions that the target does not have."""
    asked = ", ".join(f"{value!r} asks for {dtype}" for dtype, value in spelled.items())
    there = {"float32", row_of(knob.value)[1]}
    here = ", ".join(dtype for dtype in state.context.precisions if dtype not in there)
    if here:
        return f"{asked}; worth a try on this target: {here}."
    return f"{asked}; this target has no narrower precision."


def try_gated(
    state: TunerState, knob: Knob, values: Sequence[JsonScalar], none_faster: str
) -> Stage:
    """Try each value; keep the first inside the tolerance.

    The program ignores the knob only if no value had an effect.
    """
    start, key, ran = state.incumbent_run, key_of(knob), 0
    ignored: list[tuple[Candidate, Run]] = []
    seen = Verdict(inside=False)
    for value in values:
        candidate = state.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            state = set_refused(state, knob, candidate)
            continue
        state, trial = yield from run_trial(state, make_request(state, candidate, moved=(key,)))
        if trial is None:
            if not ran:
                return state.set_verdict(key, "skipped", OUT_OF_TIME)
            break
        ran += 1
        run = trial.run
        if run is None:
            continue
        if is_ignored(knob, candidate, start, run):
            ignored.append((candidate, run))
            continue
        if not state.is_faster(run, start):
            continue
        state, seen = yield from passes_gate(state, Variant(candidate=candidate), run)
        if seen.inside:
            reason = f"Inside its tolerance{seen.figures}."
            return state.adopt(candidate, run).set_verdict(key, "found", reason)
    if not ran:
        return state
    if len(ignored) == ran:
        return set_ignored(state, knob, *ignored[-1])
    reason = f"{none_faster}{seen.figures}. {seen.why}".strip()
    return state.set_verdict(key, "kept", reason)


def tune_flags(state: TunerState) -> Stage:
    """Every plain flag that is off, then plain attention."""
    for kind in FLAGS:
        for knob in state.tunable(kind):
            key = key_of(knob)
            if knob.value is True:
                state = state.set_verdict(key, "kept", "It is on already.")
            elif knob.value is not False:
                state = state.set_verdict(key, "listed", NO_PLAIN_FLAG)
            elif kind in ON_GPU and not state.incumbent_run.on_gpu:
                reason = "It does something on a GPU only, and the model is not on one."
                state = state.set_verdict(key, "kept", reason)
            elif not state.context.consents:
                state = state.set_verdict(key, "listed", NO_CONSENT.format(values="true"))
            else:
                none = "Switched on it was no faster inside its tolerance"
                state = yield from try_gated(state, knob, [True], none)
    for knob in state.tunable("attention_impl"):
        key, quicker = key_of(knob), PLAIN_ATTENTION.get(str(knob.value))
        if quicker is None:
            reason = "No quicker form of this attention is known here."
            state = state.set_verdict(key, "kept", reason)
        elif not state.context.consents:
            state = state.set_verdict(key, "listed", NO_CONSENT.format(values=quicker))
        else:
            none = "Torch's quicker form was not faster inside its tolerance"
            state = yield from try_gated(state, knob, [quicker], none)
    return state
