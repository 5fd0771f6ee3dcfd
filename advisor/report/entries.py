"""Nouns of the search as entries of report.json: one function a noun, no sentence decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.executor.comparison import AFTER, BEFORE, Comparison, why_disturbed
from advisor.model import Advice, Decision, Failure, Machine
from advisor.report import advised, sentences
from advisor.report.model import (
    AdviceEntry,
    ComparisonEntry,
    DecisionEntry,
    Gain,
    MachineEntry,
    RoundEntry,
    TargetEntry,
    TrialEntry,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.executor.requests import TrialResult
    from advisor.machine.target import Target
    from advisor.model import Candidate, Interval
    from advisor.objective import Objective


def gain_entry(interval: Interval | None) -> Gain | None:
    """An interval as the report prints it; without its high where that tells no size."""
    if interval is None:
        return None
    high = None if sentences.too_wide(interval) else interval.high
    return Gain(ratio=interval.estimate, low=interval.low, high=high, pairs=interval.n)


def decision_entry(decision: Decision, attempts: Mapping[str, TrialResult]) -> DecisionEntry:
    """One decision for the report."""

    def plain(value: object) -> object:
        return list(value) if isinstance(value, tuple) else value

    return DecisionEntry.model_validate(
        {
            "path": decision.path,
            "kind": decision.kind,
            "class": decision.knob_class,
            "document": decision.document,
            "outcome": decision.outcome,
            "from": plain(decision.old),
            "to": plain(decision.new),
            "why": sentences.why(decision),
            "evidence": sentences.evidence(decision, attempts),
            "trials": list(decision.trials),
        }
    )


def advice_entry(advice: Advice) -> AdviceEntry:
    """One advice for the report."""
    return AdviceEntry(
        title=advice.title,
        detail=advised.advised(advice),
        gain=gain_entry(advice.gain),
        site=advice.site,
        patch=advice.patch,
    )


def settings_of(candidate: Candidate) -> dict[str, Any]:
    """What a candidate has other than the original, by path."""
    return {
        change.path: list(change.new) if isinstance(change.new, tuple) else change.new
        for change in candidate.changes
    }


def trial_entry(attempt: TrialResult) -> TrialEntry:
    """One process for the report and the progress display."""
    result = attempt.result
    common = {
        "id": attempt.id,
        "purpose": attempt.request.purpose,
        "label": attempt.label,
        "wall_s": result.wall_s,
        "settings": settings_of(attempt.request.variant.candidate),
        "whatif": attempt.request.variant.whatif,
        "reused": attempt.reused,
        "repeated": attempt.repeated,
    }
    if isinstance(result, Failure):
        detail = f"{result.evidence}\n{result.log_tail}".strip()
        return TrialEntry.model_validate({**common, "outcome": result.kind, "detail": detail})
    return TrialEntry.model_validate(
        {
            **common,
            "outcome": "ok",
            "units_per_s": result.units_per_s,
            "batch": result.effects.batch,
            "workers": result.effects.workers,
            "wait_share": result.wait_share,
            "peak_mem_gib": result.peak_mem_gib,
            "rate_source": result.rate_source,
            "others_cpus": result.disturbance.others_cpus,
            "disturbed": result.disturbance.disturbed,
            "detail": "; ".join(result.notes),
        }
    )


def comparison_entry(found: Comparison, objective: Objective) -> ComparisonEntry:
    """The rounds of one comparison, raw."""
    counted = {each.number for each in found.counted}
    return ComparisonEntry(
        purpose=found.ab_test.purpose,
        title=found.ab_test.title,
        before=found.ab_test.before.variant.label,
        after=found.ab_test.after.variant.label,
        settings=settings_of(found.ab_test.after.variant.candidate),
        gain=gain_entry(found.interval(objective)),
        rounds=[
            RoundEntry(
                round=each.number,
                before=objective.score(before),
                after=objective.score(after),
                disturbed=why_disturbed(each.runs),
                counted=each.number in counted,
            )
            for each in found.rounds
            if not each.broken
            and (before := each.runs[BEFORE].run) is not None
            and (after := each.runs[AFTER].run) is not None
        ],
    )


def machine_entry(machine: Machine) -> MachineEntry:
    """Where it was measured."""
    return MachineEntry(
        cpu=machine.cpu_model,
        cpus=machine.cpus,
        ram_gib=machine.ram_limit_gib,
        os=machine.os,
        gpus=[gpu.name for gpu in machine.gpus],
        gpu_note=machine.gpu_note,
        driver=machine.gpus[0].driver if machine.gpus else None,
        python=machine.python,
    )


def target_entry(target: Target, memory_limit_gib: float) -> TargetEntry:
    """The card aimed at."""
    return TargetEntry(
        name=target.name,
        title=target.title,
        present=target.present,
        stood_in=target.stood_in,
        memory_limit_gib=memory_limit_gib,
        figures=target.figures,
        note=target.note,
    )
