"""Precision: only what exists on the target, and only behind the guard the user declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.knobs import precision_choices
from advisor.tuning.attempts import Attempts
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown

if TYPE_CHECKING:
    from advisor.model import JsonScalar, Knob
    from advisor.tuning.guard import Guard


def tune_precision(search: Search, guard: Guard) -> None:
    """Precisions that exist on the target, behind the guard the user declared."""
    for knob in search.undecided("precision"):
        spelled = {d: v for d, v in precision_choices(knob).items() if v != knob.value}
        choices = {d: v for d, v in spelled.items() if d in search.precisions}
        if not spelled:
            search.decide(knob, "kept", "No narrower precision of this spelling is known.")
        elif not choices:
            asked = ", ".join(f"{value!r} asks for {dtype}" for dtype, value in spelled.items())
            here = ", ".join(search.precisions)
            search.decide(knob, "kept", f"{asked}; worth a try on this target: {here}.")
        elif not guard.declared:
            names = ", ".join(str(value) for value in choices.values())
            search.decide(
                knob,
                "listed",
                f"{names} not tried: no numeric-tolerance or quality measure is "
                "declared for this workload in gpu-advisor.toml.",
            )
        else:
            try_precisions(search, knob, list(choices.values()), guard)


def try_precisions(search: Search, knob: Knob, values: list[JsonScalar], guard: Guard) -> None:
    """Each choice on top of the best; the first that is faster and inside the guard stays."""
    start = search.best
    assert start is not None
    attempts = Attempts(search=search, knob=knob, evidence=[f"{knob.value}: {shown(start)}"])
    for value, candidate, result in attempts.of(values):
        if not search.faster(result, start):
            drift = guard.drift(result) or "no losses seen"
            attempts.evidence.append(f"{value}: {shown(result)}, no faster by a tie; {drift}")
            continue
        try:
            inside, seen = guard.within(candidate, result)
        except OverBudgetError as problem:
            search.over_budget(knob.path, problem)
            break
        attempts.evidence.append(f"{value}: {shown(result)}, {seen}")
        if inside:
            gain = result.units_per_s / start.units_per_s
            search.adopt(candidate, result)
            search.decide(
                knob,
                "changed",
                f"{value} ran {gain:.2f}x as fast, inside its guard: {seen}.",
                new=value,
                evidence=attempts.evidence,
                trials=attempts.ids,
            )
            return
    if attempts.ignored:
        return
    if not attempts.ids and len(attempts.evidence) == 1:
        search.decide(knob, "skipped", "The budget was spent before another precision could run.")
        return
    search.decide(
        knob,
        "kept",
        "No other precision was faster inside its guard.",
        evidence=attempts.evidence,
        trials=attempts.ids,
    )
