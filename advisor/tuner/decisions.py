"""What became of every knob: derived once, from where the search ended and what is written.

Whether a knob changed is read off the winner alone, so no word of a stage can contradict the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Decision
from advisor.tuner.baseline import OWN_KINDS
from advisor.tuner.flags import FLAGS
from advisor.tuner.standing import TunerState, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.executor.requests import TrialResult
    from advisor.model import Candidate, Change, Knob, KnobClass, TuningResult
    from advisor.tuner.facts import Data, KnobVerdict


STAGES: dict[str, KnobClass] = {
    "precision": "numeric",
    **dict.fromkeys((*FLAGS, "attention_impl"), "numeric"),
    "timesteps": "quality",
}
"""Kinds of knobs whose stages a tier leaves out, and the class that a tier must allow."""
TRIED = {*STAGES, *OWN_KINDS, "grad_accum", "grad_checkpoint"}
"""Kinds of knobs that a search which comes to its end tries, moves along, or says why it does
not."""


def decisions(
    now: TunerState, winner: Candidate, attempts: Sequence[TrialResult], *, whole: bool
) -> tuple[Decision, ...]:
    """A decision for every knob, and for every value that moved along with one; `whole`: the search
    came to its end, so that every stage had its say."""
    changes = {(c.document, c.path): c for c in winner.changes}
    found = []
    for knob in now.all_knobs:
        change = changes.pop(key_of(knob), None)
        trials = tuple(a.id for a in attempts if a.request.knob == key_of(knob) and not a.repeated)
        word = now.word_on(knob)
        if change is not None:
            found.append(changed(change, word, trials))
            continue
        outcome, reason, data = left_alone(now, knob, word, whole=whole)
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
                data=data,
                trials=trials,
            )
        )
    return (*found, *(changed(change, None, ()) for change in changes.values()))


def changed(change: Change, word: KnobVerdict | None, trials: tuple[str, ...]) -> Decision:
    """A value that is written; without a word of its own it moved along with another."""
    own = word is not None and word.outcome == "found"
    return Decision(
        document=change.document,
        path=change.path,
        kind=change.kind,
        knob_class=change.knob_class,
        outcome="changed",
        old=change.old,
        new=change.new,
        reason=f"changed-{word.reason}" if word is not None and own else "changed-along",
        data=word.data if word is not None and own else (),
        trials=trials,
    )


def left_alone(
    now: TunerState, knob: Knob, word: KnobVerdict | None, *, whole: bool
) -> tuple[TuningResult, str, Data]:
    """Why a knob is as it was: outcome, reason, and what the sentence is filled with."""
    if word is not None and word.outcome == "found":
        return "kept", "not-proven", word.data
    if word is not None:
        return word.outcome, word.reason, word.data  # type: ignore[return-value]
    if not now.in_phase(knob):
        return "kept", "other-phase", (("phase", knob.phase), ("runs", now.phase))
    if not knob.editable:
        return "refused", "not-editable", (("why", knob.why),)
    needs = STAGES.get(knob.kind)
    if needs is not None and not now.facts.allows(needs):
        return "listed", "outside-tier", (("class", needs),)
    if not whole and knob.kind in TRIED:
        return "skipped", "not-reached", ()
    if knob.knob_class in {"training", "quality"}:
        return "listed", "never-by-itself", (("class", knob.knob_class),)
    return "kept", "no-stage", ()
