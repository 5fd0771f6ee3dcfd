"""A batch that changes how a model is trained, where the user allowed it: with the learning rate
scaled by the rule for the optimizer that was seen to step, and proven like everything else.

What is proven is the speed. How well a model learns so, no short run shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.knobs.tree import number_of
from advisor.model import Change
from advisor.tuner.asking import ask_for, tried
from advisor.tuner.grid import explore
from advisor.tuner.proof import prove, proven_candidate
from advisor.tuner.standing import FEWEST_ROUNDS, change_of, key_of
from advisor.tuner.whatif import sound

if TYPE_CHECKING:
    from advisor.model import Candidate, JsonScalar, Knob, Run, Scalar
    from advisor.tuner.asking import Stage
    from advisor.tuner.facts import Data, Suggestion
    from advisor.tuner.standing import TunerState

RULES = (("sgd", "linear", 1.0), ("adam", "square root", 0.5))
"""Part of an optimizer's name, the rule for it, and its power of the growth of the batch."""
ALIKE = 0.01
"""Relative difference below which two learning rates are one."""
DIGITS = 3
"""Of a rate that is written."""


def tune_training_batch(now: TunerState) -> Stage:
    """Every training batch that was faster in the search, on top of what was proven."""
    if not now.facts.training_batch or not now.trains:
        return now
    looked_at = {proposal.knob for proposal in now.proposals}
    for knob in now.tunable("batch_size"):  # those that an accumulation made up for so far
        if key_of(knob) not in looked_at and isinstance(now.current(knob), int):
            now = yield from explore(now, knob, None, beyond=True)
    for proposal in now.proposals:
        if proposal.kind == "training-batch":
            now = yield from take_up(now, proposal)
    return now


def take_up(now: TunerState, proposal: Suggestion) -> Stage:
    """The proposal with its learning rates, run and proven; else an advice that says why."""
    knob = next(knob for knob in now.all_knobs if key_of(knob) == proposal.knob)
    moved = now.with_value(knob, dict(proposal.data)["to"], beyond=True)
    if isinstance(moved, knobs.InvalidChange) or proposal.run is None:
        return now
    rates, told = rates_for(now, proposal, proposal.run)
    if "untaken" in dict(told):
        return advised(now, proposal, told)
    candidate = as_quality(now, moved.with_changes(*rates))
    request, kept_s = ask_for(now, candidate, knob=knob), now.rounds_s(FEWEST_ROUNDS)
    now, attempt = yield from tried(now, request, kept_s=kept_s)
    if attempt is None:
        return advised(now, proposal, (*told, ("untaken", "budget")))
    run = attempt.run
    if run is None or not sound(now, run) or not now.faster(run, now.front):
        return advised(now, proposal, (*told, ("untaken", "not-faster")))
    if rates and not scaled_by(now.original, run, float(str(dict(told)["factor"]))):
        return advised(now, proposal, (*told, ("untaken", "rate-not-followed")))
    data = (*proposal.data, *told)
    now = now.settle(key_of(knob), "found", "training-batch", **dict(data))
    for change in rates:
        key = (change.document, change.path)
        now = now.settle(key, "found", "learning-rate", **dict(data))
    now = yield from prove(now.adopt(candidate, run), candidate)
    if proven_candidate(now).key != candidate.key:
        return advised(now, proposal, (*told, ("untaken", "not-proven")))
    return replace(now, proposals=tuple(p for p in now.proposals if p.knob != proposal.knob))


def rates_for(now: TunerState, proposal: Suggestion, run: Run) -> tuple[tuple[Change, ...], Data]:
    """The learning rates that go with a batch, and what is to be told of them; `untaken` among that
    where there is no rule. None are changed where the program moved its own in `run`."""
    seen = now.original.effects
    names = ", ".join(seen.optimizers)
    rules = {rule_for(name) for name in seen.optimizers}
    known = rules.pop() if len(rules) == 1 else None
    if known is None or not seen.learning_rates:
        return (), (("untaken", "no-rule"),)
    rule, power = known
    factor = float(str(dict(proposal.data)["times"])) ** power
    told: Data = (("optimizer", names), ("rule", rule), ("factor", factor))
    if not scaled_by(now.original, run, 1.0):
        return (), (*told, ("own", True))
    changes = tuple(
        Change(
            document=knob.document,
            path=knob.path,
            kind=knob.kind,
            knob_class="quality",
            old=scalar.value,
            new=spelled(number * factor, scalar),
        )
        for knob, scalar, number in rates_of(now)
    )
    return changes, told if changes else (*told, ("untaken", "no-rate"))


def rates_of(now: TunerState) -> list[tuple[Knob, Scalar, float]]:
    """Learning rates of the training that may be edited, as they are written and in numbers."""
    found = []
    for knob in now.of_kind("learning_rate"):
        scalar = now.facts.source(knob.document).document.scalars.get(knob.path)
        number = number_of(knob.value)
        if knob.editable and number and scalar is not None:
            found.append((knob, scalar, number))
    return found


def spelled(rate: float, like: Scalar) -> JsonScalar:
    """`rate` with few digits; as text where that is written. YAML takes a plain `1e-3` for one."""
    few = f"{rate:.{DIGITS}g}"
    return few if isinstance(like.value, str) and like.text != like.value else float(few)


def rule_for(optimizer: str) -> tuple[str, float] | None:
    """Name and power of the rule; None for an optimizer that none is known for."""
    name = optimizer.lower()
    return next(((rule, power) for part, rule, power in RULES if part in name), None)


def scaled_by(before: Run, after: Run, factor: float) -> bool:
    """Whether every learning rate that was seen is `factor` times what it was."""
    old, new = before.effects.learning_rates, after.effects.learning_rates
    return len(old) == len(new) and all(
        abs(b - a * factor) <= ALIKE * a * factor for a, b in zip(old, new, strict=True)
    )


def as_quality(now: TunerState, candidate: Candidate) -> Candidate:
    """Its changes beyond what is proven are no free ones: another model comes of them."""
    known = {(change.document, change.path): change.new for change in now.best.changes}
    return replace(
        candidate,
        changes=tuple(
            change
            if known.get((change.document, change.path)) == change.new
            else replace(change, knob_class="quality")
            for change in candidate.changes
        ),
    )


def advised(now: TunerState, proposal: Suggestion, told: Data) -> TunerState:
    """Left to the user after all, with the reason; the knob is as it was proven before."""
    assert proposal.knob is not None
    data = (*proposal.data, *told)
    others = tuple(p for p in now.proposals if p is not proposal)
    now = replace(now, proposals=(*others, replace(proposal, data=data)))
    if change_of(now.best, proposal.knob) is not None:
        return now
    return now.settle(proposal.knob, "advised", "training-batch", **dict(data))
