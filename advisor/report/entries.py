"""Nouns of the search as entries of report.json: one function a noun, no sentence decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Advice, Decision, Failure, Machine
from advisor.report.model import (
    AdviceEntry,
    DecisionEntry,
    Gain,
    MachineEntry,
    PairEntry,
    TargetEntry,
    TrialEntry,
)

if TYPE_CHECKING:
    from advisor.machine.target import Target
    from advisor.tuning.confirm import Confirmation
    from advisor.tuning.runner import Taken

ARMS = ("before", "free", "after")


def decision_entry(decision: Decision) -> DecisionEntry:
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
            "why": decision.why,
            "evidence": list(decision.evidence),
            "trials": list(decision.trials),
        }
    )


def advice_entry(advice: Advice) -> AdviceEntry:
    """One advice for the report."""
    bounds = advice.gain
    return AdviceEntry(
        title=advice.title,
        detail=advice.detail,
        gain=None
        if bounds is None
        else Gain(ratio=bounds.estimate, low=bounds.low, high=bounds.high, pairs=bounds.n),
        site=advice.site,
        patch=advice.patch,
    )


def trial_entry(taken: Taken) -> TrialEntry:
    """One process for the report and the progress display."""
    result = taken.result
    if isinstance(result, Failure):
        return TrialEntry(
            id=taken.id,
            purpose=taken.purpose,
            label=taken.label,
            outcome=result.kind,
            wall_s=result.wall_s,
            detail=f"{result.evidence}\n{result.log_tail}".strip(),
            reused=taken.reused,
        )
    return TrialEntry(
        id=taken.id,
        purpose=taken.purpose,
        label=taken.label,
        outcome="ok",
        units_per_s=result.units_per_s,
        batch=result.effects.batch,
        workers=result.effects.workers,
        wait_share=result.wait_share,
        peak_mem_gib=result.peak_mem_gib,
        wall_s=result.wall_s,
        rate_source=result.rate_source,
        detail="; ".join(result.notes),
        reused=taken.reused,
    )


def pairs(proof: Confirmation | None) -> list[PairEntry]:
    """The rounds of the confirmation, raw."""
    if proof is None:
        return []
    rounds = min((len(rates) for rates in proof.rates.values()), default=0)
    return [
        PairEntry(
            round=i + 1, rates={arm: proof.rates[arm][i] for arm in ARMS if arm in proof.rates}
        )
        for i in range(rounds)
    ]


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
