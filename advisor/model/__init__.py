"""The domain's nouns: facts we made, frozen, with units in their names.

`None` always means "not measured" or "not known"; it is never written as 0.
"""

from advisor.model.kinds import (
    TIERS,
    TRAINING_STEPS,
    EffectVerdict,
    JsonScalar,
    KnobClass,
    Phase,
    Purpose,
    Tier,
    TrainingSign,
)
from advisor.model.machines import Gpu, GpuProfile, Machine
from advisor.model.observations import (
    Card,
    Ceilings,
    Disturbance,
    Effects,
    Flops,
    Footprint,
    InTurn,
    LoaderCeiling,
    Neighbour,
    ResultFile,
    Shares,
    Spell,
    Stage,
    SyncPoint,
    Telemetry,
    WhatIfOutcome,
)
from advisor.model.outcomes import Advice, Decision, Interval, Outcome
from advisor.model.runs import Failure, Run
from advisor.model.settings import Candidate, Change, Knob, Link, Scalar, Span, Trap
from advisor.model.trials import BatchPlace, MeasurePlan, Origins, Trial, TrialFile

__all__ = [
    "TIERS",
    "TRAINING_STEPS",
    "Advice",
    "BatchPlace",
    "Candidate",
    "Card",
    "Ceilings",
    "Change",
    "Decision",
    "Disturbance",
    "EffectVerdict",
    "Effects",
    "Failure",
    "Flops",
    "Footprint",
    "Gpu",
    "GpuProfile",
    "InTurn",
    "Interval",
    "JsonScalar",
    "Knob",
    "KnobClass",
    "Link",
    "LoaderCeiling",
    "Machine",
    "MeasurePlan",
    "Neighbour",
    "Origins",
    "Outcome",
    "Phase",
    "Purpose",
    "ResultFile",
    "Run",
    "Scalar",
    "Shares",
    "Span",
    "Spell",
    "Stage",
    "SyncPoint",
    "Telemetry",
    "Tier",
    "TrainingSign",
    "Trap",
    "Trial",
    "TrialFile",
    "WhatIfOutcome",
]
