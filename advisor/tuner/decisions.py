"""Decisions: a verdict and a sentence for every knob."""

from collections.abc import Sequence
from typing import Any

from advisor import numbers
from advisor.executor.requests import TrialResult
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.model import OUTCOMES, Candidate, Change, Decision, DecisionCause, Knob
from advisor.tuner.effects import other_phase
from advisor.tuner.outcomes import KnobVerdict
from advisor.tuner.stages import Stop
from advisor.tuner.state import TunerState, change_of, key_of

TOLD_ONLY = {"fused_kernels", "num_beams", "num_envs"}
"""Kinds that no search comes to, however long it is: they are found, and told."""
LINKED = "Moves with what it is linked to."


def decisions(
    state: TunerState, winner: Candidate, trials: Sequence[TrialResult], stop: Stop | None
) -> tuple[Decision, ...]:
    """Decide on every knob and linked value, once the search ended."""
    whole = stop is not None and stop.reason == "done"
    changes = {key_of(change): change for change in winner.changes}
    of_knobs = []
    for knob in state.all_knobs:
        verdict, new = state.verdict_on(knob), knob.value
        cause, reason = unchanged(state, knob, verdict, whole=whole)
        if (change := changes.pop(key_of(knob), None)) is not None:
            found_faster = verdict is not None and verdict.cause == "faster"
            cause, new = "faster" if found_faster else "linked", change.new
            reason = verdict.reason.strip() if verdict and found_faster else LINKED
        decision = Decision(
            **shared(knob),
            outcome=OUTCOMES[cause],
            cause=cause,
            old=knob.value,
            new=new,
            reason=reason,
            trials=tuple(t.id for t in trials if moves(t, knob)),
            in_phase=OUTCOMES[cause] != "listed" or state.in_phase(knob),
            in_code=state.in_code(knob),
        )
        of_knobs.append(decision)
    linked = (
        Decision(
            **shared(linked_change),
            outcome="changed",
            cause="linked",
            old=linked_change.old,
            new=linked_change.new,
            reason=LINKED,
        )
        for linked_change in changes.values()
    )
    return (*of_knobs, *linked)


def shared(setting: Knob | Change) -> dict[str, Any]:
    return {
        name: getattr(setting, name) for name in ("document", "path", "kind", "knob_class")
    }


def moves(trial: TrialResult, knob: Knob) -> bool:
    """True if a trial gave `knob` another value."""
    asked = trial.request
    change = change_of(asked.variant.candidate, knob)
    alone = asked.purpose in {"search", "whatif"} and not asked.series
    return alone and change is not None and not trial.repeated


def unchanged(
    state: TunerState, knob: Knob, verdict: KnobVerdict | None, *, whole: bool
) -> tuple[DecisionCause, str]:
    """Cause and sentence of a knob that keeps its value: by its trials, else why it had none."""
    if verdict is not None and verdict.cause == "faster":
        return (
            "not-proven",
            f"Not written: faster in the search, and {state.why_unproven(knob)}.",
        )
    if verdict is not None:
        return verdict.cause, verdict.reason.strip()
    if not state.in_phase(knob):
        return "other-phase", other_phase(knob, state)
    if not knob.editable:
        return "frozen", f"Left as it is: {knob.frozen}."
    if not state.context.allows(knob.knob_class):
        return (
            "safe",
            f"Not tried: --safe was given, which changes no {knob.knob_class} knob.",
        )
    if not whole and knob.kind not in TOLD_ONLY:
        return "not-reached", "The call ended before it came to this setting."
    if knob.knob_class in {"training", "quality"}:
        return "never-alone", f"Never tuned by itself: it is a {knob.knob_class} knob."
    if whole and knob.kind in loader_arguments():
        return "no-need", why_no_loader_trial(state, knob)
    return "no-value-known", (
        "Nothing is tried here: no other value is known to be faster and to leave the results as "
        "they are."
    )


def why_no_loader_trial(state: TunerState, knob: Knob) -> str:
    """Why no other value of a loader argument was tried: its need, or the waiting measured."""
    needs, seen = REGISTRY[knob.kind].needs, state.incumbent_run
    on_cpu = (seen.effects.device or "").startswith("cpu")
    if "gpu" in needs and (on_cpu or not state.context.has_gpu):
        return "It shortens copies to a GPU, and the model is not on one."
    if seen.wait_share is None:
        return "Waiting for data was not measured, so no value was tried."
    share = numbers.percent(seen.wait_share)
    where = f"With {state.best.label} the" if state.best.changes else "The"
    waits = f"{where} program waits for data {share} of the time"
    if state.waits:
        return f"{waits}; no other value is known to shorten that."
    if "gpu" in needs:
        copies = numbers.percent(seen.shares.host_to_device)
        return f"{waits} and copies to the GPU {copies}: too little to gain."
    return f"{waits}: too little for a loader setting to gain."
