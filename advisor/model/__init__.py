"""The domain's nouns: facts we made, frozen, with units in their names.

`None` always means "not measured" or "not known"; it is never written as 0.
"""

from advisor.model.kinds import (
    SAMPLER_FORWARDS as SAMPLER_FORWARDS,
    TRAINING_STEPS as TRAINING_STEPS,
    EffectVerdict as EffectVerdict,
    JsonScalar as JsonScalar,
    KnobClass as KnobClass,
    Phase as Phase,
    Purpose as Purpose,
    TrainingSign as TrainingSign,
)
from advisor.model.machines import (
    Gpu as Gpu,
    GpuProfile as GpuProfile,
    Machine as Machine,
)
from advisor.model.observations import (
    Card as Card,
    Disturbance as Disturbance,
    Effects as Effects,
    Flops as Flops,
    Footprint as Footprint,
    LoaderCeiling as LoaderCeiling,
    Neighbour as Neighbour,
    ResultFile as ResultFile,
    RunPhase as RunPhase,
    Shares as Shares,
    Stage as Stage,
    SyncPoint as SyncPoint,
    Telemetry as Telemetry,
    WhatIfOutcome as WhatIfOutcome,
)
from advisor.model.outcomes import (
    Advice as Advice,
    Decision as Decision,
    Interval as Interval,
    TuningResult as TuningResult,
)
from advisor.model.runs import (
    Failure as Failure,
    Run as Run,
)
from advisor.model.settings import (
    Candidate as Candidate,
    Change as Change,
    FalseMatch as FalseMatch,
    Knob as Knob,
    KnobConstraint as KnobConstraint,
    Scalar as Scalar,
    Span as Span,
    leaf_of as leaf_of,
)
from advisor.model.trials import (
    MeasurePlan as MeasurePlan,
    Origins as Origins,
    Trial as Trial,
    TrialFile as TrialFile,
)
