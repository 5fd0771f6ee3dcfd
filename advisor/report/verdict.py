"""Verdict of a search, with gain and reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.executor.comparison import chained
from advisor.report import sentences
from advisor.tuner.confirm import is_significant, proven_confirmations, restores_constraints
from advisor.tuner.state import SPARE

if TYPE_CHECKING:
    from advisor.executor.comparison import Comparison
    from advisor.executor.program import Program
    from advisor.executor.requests import TrialResult
    from advisor.model import Advice, Candidate, Decision, Interval, Machine, Neighbour
    from advisor.report.schema import OptimizeVerdict
    from advisor.tuner.state import Stop, TunerState


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """Finished search, with the candidate to write."""

    stop: Stop | None
    """None: interrupted before the search stopped."""
    state: TunerState
    attempts: tuple[TrialResult, ...]
    comparisons: tuple[Comparison, ...]
    winner: Candidate
    decisions: tuple[Decision, ...]
    advice: tuple[Advice, ...]
    program: Program
    machine: Machine
    diff: str
    history_set_aside: str = ""
    """Reason why runs of earlier calls were not used; empty where they were."""
    background_load: tuple[Neighbour, ...] = ()
    """Programs at work when a process had to begin beside them."""

    @property
    def interrupted(self) -> bool:
        return self.stop is None

    @property
    def unfinished(self) -> bool:
        """True if the call ended before its search."""
        return self.stop is None or self.stop.reason == "budget-too-small"

    @property
    def subject(self) -> str:
        """`command` or `config`: the thing that is tuned."""
        return "command" if self.program.config is None else "config"

    @property
    def unit(self) -> str:
        """The unit that was counted: the workload's, or tokens."""
        originals = self.state.originals
        return originals[-1].unit if originals else self.program.unit

    @property
    def chain(self) -> tuple[Comparison, ...]:
        """Comparisons from the original to the winner."""
        return proven_confirmations(self.state) if self.winner.changes else ()

    @property
    def restored_constraints(self) -> list[str]:
        """Constraints that every run of the original broke."""
        state = self.state
        if not self.winner.changes or not restores_constraints(state, state.originals):
            return []
        return [each.text for each in state.context.objective.broken(state.original)]

    @property
    def never_run(self) -> list[str]:
        """Settings whose other values the budget left out."""
        return [decision.path for decision in self.decisions if decision.outcome == "skipped"]


def is_traded(comparison: Comparison) -> bool:
    """True if the step adds changes that may alter results."""
    old = comparison.ab_test.before.variant.candidate
    new = comparison.ab_test.after.variant.candidate
    return old.only("numeric", "quality").key != new.only("numeric", "quality").key


def quality_proven(found: TuningResult) -> bool | None:
    """True if traded results were confirmed.

    None where nothing was traded.
    """
    if not found.winner.only("numeric", "quality").changes:
        return None
    return found.state.context.workload.quality_proof == "bounds"


def whole_gain(found: TuningResult) -> Interval | None:
    """Gain of all written values, by all evidence."""
    return chained(found.chain, found.state.context.objective)


def baseline_note(found: TuningResult) -> str:
    """Sentence on a baseline that disagrees with the comparison."""
    objective, unit = found.state.context.objective, found.unit
    name = objective.unit(unit, numbers.plural(unit))
    return (found.chain and found.chain[0].drift_note(objective, name)) or ""


def verdict_of(found: TuningResult) -> OptimizeVerdict:
    """Verdict; `unchanged` only if no budget shows more."""
    if found.interrupted:
        return "partial"
    if found.winner.changes:
        return "improved"
    assert found.stop is not None
    state = found.state
    left_out = bool(found.never_run) or any(entry.matters for entry in state.skipped)
    is_open = without_its_proof(state) or state.likely is not None
    cut_short = bool(state.confirmations) and state.confirmations[-1].cut_short
    ended = left_out or is_open or cut_short or found.stop.reason == "budget-too-small"
    return "partial" if ended else "unchanged"


def reason(found: TuningResult) -> str:
    """Reason of the verdict, in short."""
    state, stop = found.state, found.stop
    if stop is None:
        many = numbers.many(sum(not attempt.reused for attempt in found.attempts), "process")
        return (
            f"Interrupted after {many}. The {found.subject} is untouched, and the next call "
            "reuses these measurements."
        )
    if stop.reason == "budget-too-small":
        return _too_small(found, stop)
    whole = whole_gain(found)
    if whole is None:
        text = _last_failed(found) if state.confirmations else _no_comparison(found)
        if verdict_of(found) != "partial":
            return text
        budget = numbers.whole_minutes(needed_budget_s(state))
        return f"{text} Call again with --budget {budget}."
    gained = sentences.gained(whole, found.unit, state.context.objective.name)
    text = f"The tuned {found.subject} {gained}."
    if found.restored_constraints:
        kept = ", ".join(found.restored_constraints)
        text += f" It keeps {kept}; no run of the original did."
    if not all(is_significant(state, each) for each in state.confirmations):
        text += " Changes that were not proven on top of it were left out."
    return text


def _too_small(found: TuningResult, stop: Stop) -> str:
    state = found.state
    takes = f"takes about {numbers.duration(state.price_s)}"
    if not state.originals:
        takes = "finished no item"
    text = (
        f"One process of this program {takes}, so the budget of "
        f"{numbers.duration(state.context.budget_s)} is too small to try and prove a setting."
    )
    if state.starts.slow:
        text += (
            f" Each process needs {numbers.duration(state.starts.usual_s)} to its first step, and "
            "such starts may take a third of a budget."
        )
    return f"{text} Call again with --budget {numbers.whole_minutes(stop.needed_s or 0.0)}."


def _last_failed(found: TuningResult) -> str:
    """The outcome of the last comparison, which proved nothing."""
    last, facts = found.state.confirmations[-1], found.state.context
    if last.failure is not None:
        evidence = last.failure.evidence.rstrip(".")
        return (
            f"The best candidate failed in the comparison ({last.failure.kind}: {evidence}), so "
            "nothing was written."
        )
    gain = last.interval(facts.objective)
    measured = "" if gain is None else f": {spelled(gain)} in {numbers.many(gain.n, 'round')}"
    return (
        f"The best candidate, {last.ab_test.after.variant.label}, was not proven to gain more than "
        f"{facts.smallest_gain:.0%}{measured}. The {found.subject} stays as it is."
    )


def spelled(gain: Interval) -> str:
    """Gain as text: `1.04x (95 % interval 0.98 to 1.10)`."""
    if sentences.too_wide(gain):
        return f"{gain.estimate:.2f}x, with an interval too wide to tell"
    return f"{gain.estimate:.2f}x (95 % interval {gain.low:.2f} to {gain.high:.2f})"


def without_its_proof(state: TunerState) -> bool:
    """True if a faster candidate never came to its comparison."""
    unproven = any(proposal.outcome is None for proposal in state.suggestions)
    found = any(verdict.outcome == "found" for verdict in state.verdicts)
    return not state.confirmations and (unproven or found)


def _no_comparison(found: TuningResult) -> str:
    """The reason where no candidate came to a comparison."""
    state = found.state
    tried = any(
        attempt.request.purpose == "search" and attempt.request.variant.candidate.changes
        for attempt in found.attempts
    )
    if without_its_proof(state):
        return (
            "A candidate was faster in the search, and the budget ended before it could be proven. "
            "Nothing was written."
        )
    if pairs := _unproven_pairs(found):
        return pairs + _unknown(found)
    if tried:
        limit = numbers.percent(state.tie_threshold)
        return f"No value tested was faster by more than {limit}.{_unknown(found)}"
    if any(entry.matters for entry in state.skipped):
        return "The budget was spent before a candidate could run, so nothing is known yet."
    if state.quality.judgements:
        return "No change of results was confirmed to stay inside the declared tolerances."
    none = "No setting was found that may be changed without asking you."
    return _unknown(found).lstrip() or none


def _unknown(found: TuningResult) -> str:
    """Settings that the budget left out, as text."""
    names = found.never_run
    if not names:
        return ""
    return f" The budget was spent before {', '.join(names)} could be tried."


def _unproven_pairs(found: TuningResult) -> str:
    """The most promising suggestion, where its pairs proved nothing."""
    state = found.state
    objective, least = state.context.objective, state.context.smallest_gain
    ended = [(each, each.outcome) for each in state.suggestions if each.outcome is not None]
    if not ended or any(pairs.proven(objective, least) for _, pairs in ended):
        return ""
    best, pairs = max(ended, key=lambda each: each[0].gain)
    gain = pairs.interval(objective)
    if gain is not None:
        result = f"{gain.n} pairs of runs gave {spelled(gain)}"
    elif pairs.cut_short:
        result = "the budget ended amid its pairs of runs"
    else:
        result = "no two pairs of runs could be compared"
    return f"{best.title} was {best.gain:.2f}x in one run; {result}. No gain was proven."


def needed_budget_s(state: TunerState) -> float:
    """Budget for the steps that this one lacked."""
    missing_s = max((entry.needed_s - entry.remaining_s for entry in state.skipped), default=0.0)
    starts_s = state.starts.budget_for(math.ceil(missing_s / max(state.price_s, 1e-9)))
    return SPARE * max(state.context.budget_s + missing_s, starts_s)
