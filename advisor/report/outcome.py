"""How a search ended: the verdict, the gain of what is written, and why it is no other one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.executor.comparison import chained
from advisor.report import sentences
from advisor.tuner.proof import mends, proven_proofs
from advisor.tuner.standing import SPARE

if TYPE_CHECKING:
    from advisor.executor.comparison import Comparison
    from advisor.executor.program import Program
    from advisor.executor.requests import TrialResult
    from advisor.model import (
        Advice,
        Candidate,
        Change,
        Decision,
        Interval,
        KnobClass,
        Machine,
        Neighbour,
    )
    from advisor.report.model import OptimizeVerdict
    from advisor.tuner.asking import Stop
    from advisor.tuner.standing import TunerState


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """How a search ended, and what is written."""

    stop: Stop | None
    """None: interrupted before the strategy stopped."""
    standing: TunerState
    attempts: tuple[TrialResult, ...]
    comparisons: tuple[Comparison, ...]
    winner: Candidate
    decisions: tuple[Decision, ...]
    advice: tuple[Advice, ...]
    program: Program
    machine: Machine
    diff: str
    history_set_aside: bool = False
    crowd: tuple[Neighbour, ...] = ()
    """Who was at work when a process had to begin beside others."""

    @property
    def interrupted(self) -> bool:
        return self.stop is None

    @property
    def unfinished(self) -> bool:
        """Whether the call ended before the search came to an end of its own."""
        return self.stop is None or self.stop.reason == "budget-too-small"

    @property
    def what(self) -> str:
        """What is tuned, in a word."""
        return "command" if self.program.config is None else "config"


def unit_of(found: TuningResult) -> str:
    """What was counted: the workload's unit, or tokens where the samples could not be told."""
    originals = found.standing.originals
    return originals[-1].unit if originals else found.program.unit


def chain_of(found: TuningResult) -> tuple[Comparison, ...]:
    """The proofs that lead from the original to the winner; none where nothing is written."""
    return proven_proofs(found.standing) if found.winner.changes else ()


def class_of(change: Change, now: TunerState) -> KnobClass:
    """A training knob by its name is free in a program that was seen not to train."""
    trains = not now.originals or now.trains
    return "free" if change.knob_class == "training" and not trains else change.knob_class


def traded(proof: Comparison) -> bool:
    """Whether what the proof adds may change results."""
    old, new = proof.ab_test.before.variant.candidate, proof.ab_test.after.variant.candidate
    return old.only("numeric", "quality").key != new.only("numeric", "quality").key


def quality_proven(found: TuningResult) -> bool | None:
    """Whether what is written and may change results was confirmed; None where nothing may. How
    well a model is trained in other batches no short run confirms."""
    if not found.winner.only("numeric", "quality").changes:
        return None
    return not retrains(found) and found.standing.facts.workload.quality_proof == "bounds"


def retrains(found: TuningResult) -> bool:
    """Whether what is written holds a batch that changes how the model is trained."""
    return any(change.kind == "batch_size" for change in found.winner.only("quality").changes)


def mended(found: TuningResult) -> list[str]:
    """Constraints that no run of the original was inside of, where something is written."""
    now = found.standing
    if not found.winner.changes or not mends(now, now.originals):
        return []
    return [each.text for each in now.facts.objective.broken(now.original)]


def gained_by(found: TuningResult) -> Interval | None:
    """Gain of everything that is written, over the original."""
    return chained(chain_of(found), found.standing.facts.objective)


def verdict_of(found: TuningResult) -> OptimizeVerdict:
    """`unchanged` only where candidates ran and lost, or there was none to run; a larger budget
    would not have told more."""
    if found.interrupted:
        return "partial"
    if found.winner.changes:
        return "improved"
    assert found.stop is not None
    now = found.standing
    left_out = bool(never_run(found)) or any(entry.matters for entry in now.skipped)
    open_ = without_its_proof(now) or (bool(now.proofs) and now.proofs[-1].cut_short)
    ended = left_out or open_ or found.stop.reason == "budget-too-small"
    return "partial" if ended else "unchanged"


def never_run(found: TuningResult) -> list[str]:
    """Settings of which the budget held no other value; a larger one would have tried them."""
    return [decision.path for decision in found.decisions if decision.outcome == "skipped"]


def reason(found: TuningResult) -> str:
    """Why the verdict is what it is."""
    now, stop = found.standing, found.stop
    if stop is None:
        many = numbers.many(sum(not attempt.reused for attempt in found.attempts), "process")
        return (
            f"Interrupted after {many}; the {found.what} is untouched, and "
            "the next call goes on from what was measured."
        )
    if stop.reason == "budget-too-small":
        takes = f"takes about {numbers.duration(now.price_s)}"
        if not now.originals:
            takes = "finished no item"
        if now.starts.slow:
            takes += f", {numbers.duration(now.starts.usual_s)} of that to its first step, and at "
            takes += "most a third of a budget goes to such starts"
        return (
            f"One process of this program {takes}, so the "
            f"budget of {numbers.duration(now.facts.budget_s)} is too small to try a setting and "
            f"prove it. Call again with --budget {numbers.whole_minutes(stop.needed_s or 0.0)}."
        )
    whole = gained_by(found)
    if whole is not None:
        told = sentences.gained(whole, unit_of(found), now.facts.objective.name)
        text = f"The tuned {found.what} {told}."
        if mended(found):
            text += f" It is inside of {', '.join(mended(found))}, as no run of the original was."
        if retrains(found):
            text += (
                " It changes how the model is trained, as --training-batch allows: the speed is "
                "proven, and how well the model then learns was not measured."
            )
        if len(now.proofs) > len(chain_of(found)):
            text += " What was not proven on top of it was left out."
        return text
    text = not_proven(found, now.proofs[-1]) if now.proofs else without_proof(found)
    return text + (again(now) if verdict_of(found) == "partial" else "")


def not_proven(found: TuningResult, last: Comparison) -> str:
    """What came of the last proof, which did not hold."""
    if last.failure is not None:
        return (
            f"The best candidate failed while it was being proven ({last.failure.kind}: "
            f"{last.failure.evidence}), so nothing was written."
        )
    facts = found.standing.facts
    found_gain = last.interval(facts.objective)
    bounds = ""
    if found_gain is not None:
        wide = sentences.too_wide(found_gain)
        told = f"95 % bounds {found_gain.low:.2f} to {found_gain.high:.2f}"
        told = "too few and too far apart to bound it" if wide else told
        rounds = numbers.many(found_gain.n, "round")
        bounds = f" ({found_gain.estimate:.2f}x in {rounds} that count, {told})"
    return (
        f"The best candidate, {last.ab_test.after.variant.label}, was not proven to gain more than "
        f"{facts.smallest_gain:.0%}{bounds}, so the {found.what} stays as it is."
    )


def without_its_proof(now: TunerState) -> bool:
    """Whether something was faster in the search, and no round of its proof was run."""
    unproven = any(proposal.outcome is None for proposal in now.proposals)
    return not now.proofs and (unproven or any(word.outcome == "found" for word in now.settled))


def without_proof(found: TuningResult) -> str:
    """Why no candidate came as far as a proof."""
    now = found.standing
    tried = [
        a
        for a in found.attempts
        if a.request.purpose == "search" and a.request.variant.candidate.changes
    ]
    if without_its_proof(now):
        return (
            "What was faster in the search could not be proven before the budget was spent, so "
            "nothing was written."
        )
    if unproven := in_pairs(found):
        return unproven + unknown(found)
    if not tried and any(entry.matters for entry in now.skipped):
        return "The budget was spent before a candidate could run, so nothing is known yet."
    if not tried and now.quality.judgements:
        return "What would change results was not confirmed to stay inside the declared tolerances."
    if not tried:
        none = "No setting was found that may be changed without asking you."
        return unknown(found).lstrip() or none
    what = "that may be written without asking you" if found.advice else "that was tried"
    return f"Nothing {what} is faster by more than {numbers.percent(now.band)}." + unknown(found)


def unknown(found: TuningResult) -> str:
    """What nothing is known of, because the budget was spent; with a space before it."""
    names = never_run(found)
    return (
        f" The budget was spent before {', '.join(names)} could be tried, so nothing is known of "
        f"{'it' if len(names) == 1 else 'them'}."
        if names
        else ""
    )


def in_pairs(found: TuningResult) -> str:
    """What pairs of runs said of the most promising that they did not prove, where they proved
    nothing else; empty where nothing came as far as that."""
    now = found.standing
    objective, least = now.facts.objective, now.facts.smallest_gain
    ended = [(each, each.outcome) for each in now.proposals if each.outcome is not None]
    if not ended or any(pairs.proven(objective, least) for _, pairs in ended):
        return ""
    best, pairs = max(ended, key=lambda each: each[0].gain)
    told = pairs.interval(objective)
    if told is None:
        said = "no two pairs of runs could be set side by side"
        said = "the budget ended amid its pairs of runs" if pairs.cut_short else said
    else:
        said = f"{told.n} pairs of runs said {told.estimate:.2f}x"
        if not sentences.too_wide(told):
            said += f" (95 % bounds {told.low:.2f} to {told.high:.2f})"
    return f"{best.title} looked {best.gain:.2f}x better at first; {said}, so no gain was proven."


def again(now: TunerState) -> str:
    """The budget that would have held what this one did not; what was measured is known then."""
    missing_s = max((entry.needed_s - entry.remaining_s for entry in now.skipped), default=0.0)
    starts_s = now.starts.budget_for(math.ceil(missing_s / max(now.price_s, 1e-9)))
    needed_s = SPARE * max(now.facts.budget_s + missing_s, starts_s)
    return f" Call again with --budget {numbers.whole_minutes(needed_s)}: it goes on from here."
