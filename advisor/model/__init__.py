"""The domain's nouns: facts we made, frozen, with units in their names.

`None` always means "not measured" or "not known"; it is never written as 0.
"""

from advisor.model.kinds import (
    SAMPLER_FORWARDS,
    TRAINING_STEPS,
    EffectVerdict,
    JsonScalar,
    KnobClass,
    Phase,
    Purpose,
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
    LoaderCeiling,
    Neighbour,
    ResultFile,
    RunPhase,
    Shares,
    Stage,
    SyncPoint,
    Telemetry,
    WhatIfOutcome,
)
from advisor.model.outcomes import Advice, Decision, Interval, TuningResult
from advisor.model.runs import Failure, Run
from advisor.model.settings import (
    Candidate,
    Change,
    FalseMatch,
    Knob,
    KnobConstraint,
    Scalar,
    Span,
    leaf_of,
)
from advisor.model.trials import MeasurePlan, Origins, Trial, TrialFile

__all__ = [
    "SAMPLER_FORWARDS",
    "TRAINING_STEPS",
    "Advice",
    "Candidate",
    "Card",
    "Ceilings",
    "Change",
    "Decision",
    "Disturbance",
    "EffectVerdict",
    "Effects",
    "Failure",
    "FalseMatch",
    "Flops",
    "Footprint",
    "Gpu",
    "GpuProfile",
    "Interval",
    "JsonScalar",
    "Knob",
    "KnobClass",
    "KnobConstraint",
    "LoaderCeiling",
    "Machine",
    "MeasurePlan",
    "Neighbour",
    "Origins",
    "Phase",
    "Purpose",
    "ResultFile",
    "Run",
    "RunPhase",
    "Scalar",
    "Shares",
    "Span",
    "Stage",
    "SyncPoint",
    "Telemetry",
    "TrainingSign",
    "Trial",
    "TrialFile",
    "TuningResult",
    "WhatIfOutcome",
    "leaf_of",
]
