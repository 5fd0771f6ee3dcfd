"""Precision: only what exists on the target, and only behind the numeric guard declared."""

from __future__ import annotations

from advisor import knobs
from advisor.knobs import precision_choices
from advisor.model import Failure, JsonScalar, Knob
from advisor.quality import loss_drift
from advisor.tuning import effects
from advisor.tuning.attempts import decide_ignored
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown


def tune_precision(search: Search) -> None:
    """Precisions that exist on the target, behind the numeric guard the user declared."""
    tolerance = search.workload.numeric_tolerance
    for knob in search.undecided("precision"):
        choices = {
            dtype: value
            for dtype, value in precision_choices(knob).items()
            if dtype in search.precisions and value != knob.value
        }
        if not choices:
            search.decide(knob, "kept", "No other precision of this spelling exists here.")
        elif tolerance is None and not search.workload.quality:
            names = ", ".join(str(value) for value in choices.values())
            search.decide(
                knob,
                "listed",
                f"{names} not tried: no numeric-tolerance or quality measure is "
                "declared for this workload in gpu-advisor.toml.",
            )
        else:
            try_precisions(search, knob, list(choices.values()), tolerance)


def try_precisions(
    search: Search, knob: Knob, values: list[JsonScalar], tolerance: float | None
) -> None:
    """Each choice on top of the best; the first that is faster and inside the guard stays."""
    assert search.best is not None
    start, evidence, ids = search.best, [f"{knob.value}: {shown(search.best)}"], []
    for value in values:
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            evidence.append(f"{value}: {candidate.reason}")
            continue
        try:
            result = search.run(candidate)
        except OverBudgetError as problem:
            search.over_budget(knob.path, problem)
            break
        ids.append(search.last_id())
        if isinstance(result, Failure):
            evidence.append(f"{value}: {result.kind} ({result.evidence})")
            continue
        change = next(c for c in candidate.changes if c.path == knob.path)
        if effects.verdict(change, start, result) == "ignored":
            decide_ignored(search, knob, result, ids)
            return
        drift = loss_drift(start.losses, result.losses)
        guard = "no losses seen" if drift is None else f"loss drift {drift:.2%}"
        evidence.append(f"{value}: {shown(result)}, {guard}")
        inside = drift is not None and tolerance is not None and drift <= tolerance
        if search.faster(result, start) and (inside or (drift is None and search.workload.quality)):
            gain = result.units_per_s / start.units_per_s
            search.adopt(candidate, result)
            search.decide(
                knob,
                "changed",
                f"{value} ran {gain:.2f}x as fast with {guard}.",
                new=value,
                evidence=evidence,
                trials=ids,
            )
            return
    search.decide(
        knob,
        "kept",
        "No other precision was faster inside the numeric guard.",
        evidence=evidence,
        trials=ids,
    )
