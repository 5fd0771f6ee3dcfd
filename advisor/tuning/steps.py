"""Sampling steps: fewer, while every declared quality measure stays inside its tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.model import Candidate, Failure, Knob
from advisor.quality import judge, read_measures
from advisor.tuning import effects
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown

if TYPE_CHECKING:
    from advisor.tuning.guard import Guard

LADDER = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original steps, tried in turn until one is out of tolerance."""


def tune_steps(search: Search, guard: Guard) -> None:
    """Fewer sampling steps while every declared quality measure stays inside its tolerance."""
    measures = search.workload.quality
    for knob in search.undecided("timesteps"):
        if not isinstance(knob.value, int) or isinstance(knob.value, bool) or knob.value < 2:
            search.decide(knob, "listed", f"{knob.value!r} is no plain count; left alone.")
        elif not measures:
            search.decide(
                knob,
                "listed",
                "Fewer steps change the result, and no quality measure is declared in "
                "gpu-advisor.toml; a measure with a tolerance is the consent to trade.",
            )
        else:
            try:
                found = reference_quality(search, guard)
                if found is None:
                    search.decide(
                        knob,
                        "refused",
                        "The original's quality could not be measured: "
                        "the declared patterns did not match its output.",
                    )
                else:
                    descend(search, guard, knob, knob.value, *found)
            except OverBudgetError as problem:
                search.over_budget(knob.path, problem)
                search.decide(knob, "skipped", "The budget was spent before its quality runs.")


def reference_quality(search: Search, guard: Guard) -> tuple[dict[str, float], float] | None:
    """What tolerances are taken from, and the seconds one quality run of the best takes.

    Where the original is too slow for the budget the best free candidate stands in, and a note
    says so: free knobs cannot change results. None when the measures were not printed.
    """
    assert search.best is not None
    free = guard.run(search.best_candidate, 3 * search.expected_s())
    if isinstance(free, Failure):
        search.notes.append(f"The quality run failed: {free.kind}. {free.evidence}")
        return None
    values = guard.values(free)
    if not values:
        return None
    search.quality_before = values
    if search.best_candidate.changes:
        slower = search.best.units_per_s / search.original.units_per_s
        try:
            original = guard.run(Candidate(), free.wall_s * slower)
        except OverBudgetError:
            search.notes.append(
                "The original's quality was measured with the free settings in place, which cannot "
                f"change results: by itself it would have taken {free.wall_s * slower:.0f} s."
            )
        else:
            search.quality_before = guard.values(original) or values
    reference = guard.reference()
    if not all(j.within for j in judge(search.workload.quality, reference, values)):
        search.notes.append(
            f"{search.best_candidate.label} moved the quality out of tolerance although none of "
            "its knobs should change results; it was dropped."
        )
        search.adopt(Candidate(), search.original)
    return reference, free.wall_s


def descend(
    search: Search,
    guard: Guard,
    knob: Knob,
    original: int,
    reference: dict[str, float],
    quality_s: float,
) -> None:
    """Down the ladder on top of the best free candidate; the last rung inside tolerance stays."""
    assert search.best is not None
    evidence = [
        f"{original} steps: " + ", ".join(f"{n} {v:g}" for n, v in search.quality_before.items())
    ]
    ids: list[str] = []
    chosen: tuple[Candidate, dict[str, float], int] | None = None
    reason = "the ladder ended"
    for share in LADDER:
        value = tidy_steps(original * share)
        if value < 1 or value >= original:
            continue
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            reason = candidate.reason.partition(": ")[2] or candidate.reason
            evidence.append(f"{value} steps: refused, {reason}")
            break
        result = guard.run(candidate, quality_s * value / original)
        ids.append(search.last_id())
        if isinstance(result, Failure):
            reason = f"{value} steps failed: {result.kind}"
            evidence.append(f"{value} steps: {result.kind} ({result.evidence})")
            break
        values = read_measures(search.workload.quality, result.stdout_tail)
        judgements = judge(search.workload.quality, reference, values)
        search.judgements += [(f"{value} steps", judgement) for judgement in judgements]
        evidence.append(
            f"{value} steps: "
            + ", ".join(
                f"{j.measure} {'not printed' if j.value is None else format(j.value, 'g')} "
                f"({'within' if j.within else 'beyond'} {j.limit:g})"
                for j in judgements
            )
        )
        if not all(judgement.within for judgement in judgements):
            beyond = next(j for j in judgements if not j.within)
            reason = f"{value} steps put {beyond.measure} beyond its limit {beyond.limit:g}"
            break
        chosen = (candidate, values, value)
    adopt_steps(search, knob, chosen, reason, evidence, ids)


def adopt_steps(
    search: Search,
    knob: Knob,
    chosen: tuple[Candidate, dict[str, float], int] | None,
    reason: str,
    evidence: list[str],
    ids: list[str],
) -> None:
    """Time the chosen rung like any candidate, and settle the knob."""
    assert search.best is not None
    if chosen is None:
        search.decide(
            knob, "refused", f"Kept at {knob.value}: {reason}.", evidence=evidence, trials=ids
        )
        return
    candidate, values, value = chosen
    result = search.run(candidate, whole_batches=1)
    ids.append(search.last_id())
    if isinstance(result, Failure):
        search.decide(
            knob,
            "refused",
            f"{value} steps failed when timed: {result.evidence}",
            evidence=evidence,
            trials=ids,
        )
        return
    change = next(c for c in candidate.changes if c.path == knob.path)
    if effects.verdict(change, search.best, result) == "ignored":
        override = effects.overriding(knob.path, value, result)
        why = "Ignored by the program: its forwards per unit did not change"
        search.decide(knob, "ignored", f"{why}; {override}." if override else f"{why}.", trials=ids)
        return
    evidence.append(f"{value} steps: {shown(result)} against {shown(search.best)}")
    if not search.faster(result, search.best):
        search.decide(knob, "kept", f"{value} steps were no faster.", evidence=evidence, trials=ids)
        return
    gain = result.units_per_s / search.best.units_per_s
    schedule = [c for c in candidate.changes if c.kind == "schedule"]
    moved = (
        "; the linked schedule moved: "
        + ", ".join(f"{c.path.rsplit('.', 1)[-1]} {c.old} to {c.new}" for c in schedule)
        if schedule
        else ""
    )
    search.adopt(candidate, result)
    search.quality_after = values
    search.decide(
        knob,
        "changed",
        f"{value} steps ran {gain:.2f}x as fast with every quality measure inside its "
        f"tolerance{moved}; the search stopped because {reason}.",
        new=value,
        evidence=evidence,
        trials=ids,
    )


def tidy_steps(steps: float) -> int:
    """A count people would write: two significant digits."""
    whole = max(1, round(steps))
    digits = len(str(whole))
    return round(whole, 2 - digits) if digits > 2 else whole
