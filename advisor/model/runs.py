"""Run of one process, or its failure."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.model.kinds import TRAINING_STEPS
from advisor.model.observations import (
    Card,
    Disturbance,
    Effects,
    Flops,
    Footprint,
    LoaderCeiling,
    ResultFile,
    RunPhase,
    Shares,
    Stage,
    SyncPoint,
    Telemetry,
    WhatIfOutcome,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Measured process; kept in history before any decision."""

    unit: str
    units: float
    """Units of work finished inside the window."""
    units_per_s: float
    tokens_per_s: float | None = None
    """Token positions a second, without padding where that is known; None: no tokens go in."""
    rate_source: str
    """Way in which the units were counted: `optimizer steps x batch`."""
    window_start: float
    window_end: float
    """Epoch seconds of the measured window."""
    windows: tuple[float, ...] = ()
    """Units/s of consecutive sub-windows; steadiness only, never a sample of runs."""
    disturbance: Disturbance = field(default_factory=Disturbance)
    step_ms: float | None = None
    """Mean wall time of one step: of an optimizer or the program's own training step, of a loader
    batch, or of a root forward."""
    step_kind: str | None = None
    latency_p50_ms: float | None = None
    """Half of the batches were done so long after they were begun, or sooner: what the user of any
    of their items waits. None where only a part of one batch was seen."""
    latency_p95_ms: float | None = None
    """The same of 95 in a hundred; of fewer than 20 the slowest."""
    wait_share: float | None = None
    """Part of the window inside the loader's `__next__`; None without a loader."""
    shares: Shares = field(default_factory=Shares)
    stages: tuple[Stage, ...] = ()
    """Networks that took turns, in the order of their first calls; none of a training, and where
    there is only one."""
    phases: tuple[RunPhase, ...] = ()
    """Of the whole process, in seconds; they sum to its wall time. None of several ranks."""
    host_growth_gib_per_min: float | None = None
    """Growth of host memory after the first third of the run; None of less than a minute."""
    whole_units: float = 0.0
    """Units that were finished from load to result, not extrapolated from forwards."""
    peak_mem_gib: float | None = None
    """Device allocator peak; host peak RSS of the process tree where there is no device."""
    peak_host_gib: float | None = None
    peak_device_gib: float | None = None
    """Peak of the device allocator, freed blocks included: the card must give it."""
    losses: tuple[float, ...] = ()
    quality: tuple[tuple[str, float], ...] = ()
    effects: Effects = field(default_factory=Effects)
    ceilings: tuple[LoaderCeiling, ...] = ()
    """Of a process that worked alone."""
    syncs: tuple[SyncPoint, ...] = ()
    """The costliest first."""
    flops: Flops | None = None
    """None where no card computed, or the plan did not ask for the parts."""
    footprint: Footprint | None = None
    """None without a card, an optimizer of torch's, or the plan's asking for it."""
    trace: dict[str, object] | None = None
    """Operations and storages of one step, as the probe wrote them: untrusted."""
    whatif: WhatIfOutcome | None = None
    """None where the plan had none, or the probe could not say."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    cards: tuple[Card, ...] = ()
    """That the model was on, one for each rank; none on a CPU, or where the probe could not say."""
    ranks: int = 1
    rank_units_per_s: tuple[float, ...] = ()
    files_created: tuple[str, ...] = ()
    """Outside the scratch directory, relative to the working directory. Gone again where the
    isolation throws away what a program writes."""
    files_changed: tuple[str, ...] = ()
    """Files of the user that the program altered or removed; named like `files_created`."""
    files_in_window: int | None = None
    """Files that are no logs, last written inside the window; None: not known."""
    results: tuple[ResultFile, ...] = ()
    """Files of items that the run left, as far as the isolation could look into them."""
    isolation: str | None = None
    """Isolation of the writes: overlay, landlock, or guard (nothing but names)."""
    to_its_end: bool = False
    """The program was run to its own end."""
    stdout_tail: str = ""
    startup_s: float | None = None
    """Process start to first step."""
    window_ended_s: float | None = None
    """Process start to the end of the window; diagnostics follow it."""
    exit_code: int | None = None
    wall_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        """Return True if the program may train."""
        return self.step_kind in TRAINING_STEPS or self.effects.trains is not None

    @property
    def updates(self) -> bool:
        """Return True if training updates were certain."""
        return self.step_kind in TRAINING_STEPS or self.effects.trains == "optimizer"

    @property
    def unseen(self) -> bool:
        """Return True if the probe saw no model."""
        seen = self.effects
        return self.step_kind is None and seen.model_site is None and not seen.input_shapes

    @property
    def on_gpu(self) -> bool:
        """Return True if the model computes on a GPU."""
        return (self.effects.device or "").startswith("cuda")

    @property
    def achieved_tflops(self) -> float | None:
        """Counted operations per second of step time."""
        if self.flops is None or not self.flops.per_step or not self.step_ms:
            return None
        return self.flops.per_step / self.step_ms * 1e-9

    @property
    def held_gib(self) -> float | None:
        """Required memory: device reserved, else host peak."""
        return self.peak_device_gib or self.peak_mem_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Failure of a process to do its work."""

    kind: str
    """A key of errors.FAILURE_EXIT_CODES."""
    evidence: str
    next_step: str
    log_tail: str = ""
    effects: Effects | None = None
    """Effects seen before it failed; None where it loaded nothing."""
    exit_code: int | None = None
    wall_s: float = 0.0
    files_created: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    isolation: str | None = None
    gpu_mem_others_gib: float | None = None
    """Highest that others held on the card meanwhile."""
