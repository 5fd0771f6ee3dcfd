"""The domain's nouns: facts we made, frozen, with units in their names.

`None` always means "not measured" or "not known"; it is never written as 0.
"""

from advisor.model.machines import (
    Gpu as Gpu,
    GpuProfile as GpuProfile,
    Machine as Machine,
)
from advisor.model.runs import (
    SAMPLER_FORWARDS as SAMPLER_FORWARDS,
    TRAINING_STEPS as TRAINING_STEPS,
    Card as Card,
    Disturbance as Disturbance,
    Effects as Effects,
    EffectVerdict as EffectVerdict,
    Failure as Failure,
    Flops as Flops,
    Footprint as Footprint,
    JsonScalar as JsonScalar,
    KnobClass as KnobClass,
    LoaderCeiling as LoaderCeiling,
    Neighbour as Neighbour,
    Phase as Phase,
    Purpose as Purpose,
    ResultFile as ResultFile,
    Run as Run,
    RunPhase as RunPhase,
    Shares as Shares,
    Stage as Stage,
    Straggler as Straggler,
    SyncPoint as SyncPoint,
    Telemetry as Telemetry,
    TrainingSign as TrainingSign,
    WhatIfOutcome as WhatIfOutcome,
)
from advisor.model.settings import (
    Candidate as Candidate,
    Change as Change,
    FalseMatch as FalseMatch,
    Knob as Knob,
    KnobConstraint as KnobConstraint,
    leaf_of as leaf_of,
)
from advisor.model.trials import (
    Advice as Advice,
    Decision as Decision,
    Interval as Interval,
    MeasurePlan as MeasurePlan,
    Origins as Origins,
    Trial as Trial,
    TrialFile as TrialFile,
    TuningResult as TuningResult,
)
