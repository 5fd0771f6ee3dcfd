"""Decisions: a verdict and a sentence for every knob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Decision
from advisor.tuner.baseline import OWN_KINDS
from advisor.tuner.effects import other_phase
from advisor.tuner.state import TunerState, key_of
from advisor.tuner.value_trials import FLAGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.executor.requests import KnobKey, TrialResult
    from advisor.model import Candidate, Change, Knob, KnobClass, TuningResult
    from advisor.tuner.state import KnobVerdict


STAGES: dict[str, KnobClass] = {
    "precision": "numeric",
    **dict.fromkeys((*FLAGS, "attention_impl"), "numeric"),
    "timesteps": "quality",
}
"""Kinds that --safe leaves out, and their class."""
TRIED = {*STAGES, *OWN_KINDS, "grad_accum", "grad_checkpoint"}
"""Kinds that a whole search tries, or explains."""


def decisions(
    state: TunerState, winner: Candidate, trials: Sequence[TrialResult], *, whole: bool
) -> tuple[Decision, ...]:
    """Decide on every knob and every linked value.

    `whole`: every stage of the search ran.
    """
    changes = {(c.document, c.path): c for c in winner.changes}
    found = []
    for knob in state.all_knobs:
        key = key_of(knob)
        change = changes.pop(key, None)
        verdict, evidence = state.verdict_on(knob), trials_of(key, trials)
        if change is not None:
            found.append(changed(change, verdict, evidence))
            continue
        outcome, reason = unchanged(state, knob, verdict, whole=whole)
        found.append(
            Decision(
                document=knob.document,
                path=knob.path,
                kind=knob.kind,
                knob_class=knob.knob_class,
                outcome=outcome,
                old=knob.value,
                new=knob.value,
                reason=reason,
                trials=evidence,
            )
        )
    return (*found, *(changed(change, None, ()) for change in changes.values()))


def trials_of(knob: KnobKey, trials: Sequence[TrialResult]) -> tuple[str, ...]:
    """Ids of the trials that moved `knob`."""
    return tuple(t.id for t in trials if knob in t.request.knobs and not t.repeated)


def changed(change: Change, verdict: KnobVerdict | None, trials: tuple[str, ...]) -> Decision:
    """Decision on a value that is written."""
    own = verdict is not None and verdict.outcome == "found"
    reason = verdict.reason if verdict is not None and own else "Moves with what it is linked to."
    return Decision(
        document=change.document,
        path=change.path,
        kind=change.kind,
        knob_class=change.knob_class,
        outcome="changed",
        old=change.old,
        new=change.new,
        reason=reason.strip(),
        trials=trials,
    )


def unchanged(
    state: TunerState, knob: Knob, verdict: KnobVerdict | None, *, whole: bool
) -> tuple[TuningResult, str]:
    """Outcome and sentence of an unchanged knob."""
    if verdict is not None and verdict.outcome == "found":
        return "kept", "Not written: faster in the search, and the gain was not confirmed."
    if verdict is not None:
        return verdict.outcome, verdict.reason.strip()  # type: ignore[return-value]
    if not state.in_phase(knob):
        return "kept", other_phase(knob, state)
    if not knob.editable:
        return "refused", f"Left as it is: {knob.why}."
    needs = STAGES.get(knob.kind)
    if needs is not None and not state.context.allows(needs):
        return "listed", f"Not tried: --safe was given, which changes no {needs} knob."
    if not whole and knob.kind in TRIED:
        return "skipped", "The call ended before it came to this setting."
    if knob.kind == "num_devices":
        return "listed", "Never tuned: you decide how many processes or cards share the work."
    if knob.knob_class in {"training", "quality"}:
        return "listed", f"Never tuned by itself: it is a {knob.knob_class} knob."
    return "kept", (
        "Nothing is tried here: no other value is known to be faster and to leave the results as "
        "they are."
    )
