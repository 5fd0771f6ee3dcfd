"""Raw values of processes, as gate.json keeps them: runs, pairs, and the programs they are of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Variant = Literal["base", "head"]
Statistic = Literal["mean", "median"]
Source = Literal[
    "throughput line", "probe", "whole-run time", "pytest-benchmark", "Google Benchmark", "asv"
]

ARMS: tuple[Variant, Variant] = ("base", "head")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,  # what is written is written whole
    )


class Rate(Part):
    """Units per second of one process. A rate over windows is never a sample of its own."""

    mean: Positive
    """Units over the time they took: what decides, unless calibration found otherwise."""
    median: Positive | None = None
    fast: Positive | None = None
    """90th percentile of the windows: shown, never decides, for it hides a stalling loader."""
    windows: list[Positive] = Field(default_factory=list)
    unit: str = "run"
    work: float | None = None
    """Units finished by a run that went to its own end; null if the window was cut."""

    def value(self, statistic: Statistic) -> float:
        """The rate that decides; the mean stands in where there is no median."""
        return self.median if statistic == "median" and self.median else self.mean


class Problem(Part):
    """Why one process gave no rate."""

    kind: str
    """A failure kind of the trials, or `no-rate`."""
    evidence: str
    next_step: str = ""


class GpuReadings(Part):
    """What NVML said while one process ran. Unsteady figures: never part of a matching key."""

    uuid: str | None = None
    name: str | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    util_pct: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_spread_pct: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    event_reasons: dict[str, float] = Field(default_factory=dict)
    """Share of samples that carried each clock event reason."""
    foreign_pids: int | None = None
    busy_samples: int | None = None
    gaps: dict[str, str] = Field(default_factory=dict)
    """Reading and the reason it is missing."""


class NeighbourEntry(Part):
    """Another program that was at work on the host."""

    name: str
    """Its command name."""
    cpus: float
    """CPUs it kept busy: 0.5 is half of one."""


class DisturbanceEntry(Part):
    """What others took of the CPUs while one process was measured; what it does to itself is none.

    Null where the host does not tell.
    """

    disturbed: bool | None = None
    """Whether the rate had to be counted over time that others disturbed."""
    others_cpus: float | None = None
    """Mean number of CPUs, of those the run may use, that others kept busy."""
    waited_cpus: float | None = None
    """Mean number of the run's own threads that were ready and did not get a CPU."""
    steal_share: float | None = None
    """Share of the CPUs' time that the hypervisor gave to somebody else."""
    clean_share: float | None = None
    """Share of the window in which nobody disturbed it."""
    who: list[NeighbourEntry] = Field(default_factory=list)
    """The busiest others, most first."""


class LoadedEntry(Part):
    """Which project files one run was made of, as far as Python ran them."""

    own: int = 0
    """Files of its own checkout."""
    foreign: list[str] = Field(default_factory=list)
    """Files of the other arm's checkout, relative to it."""
    changed: dict[str, str] = Field(default_factory=dict)
    """Files that differ between base and head: a digest of what was loaded."""


class RunEntry(Part):
    """One process of one arm."""

    arm: Variant
    build: int | None = None
    """Which build of its arm, from 0; null where each was built once."""
    started: float
    """Epoch seconds."""
    wall_s: float
    source: Source | None = None
    """Where the rates come from; null if there are none."""
    rates: dict[str, Rate] = Field(default_factory=dict)
    """By workload: one, or each benchmark of a suite."""
    problem: Problem | None = None
    exit_code: int | None = None
    gpu: GpuReadings = GpuReadings()
    disturbance: DisturbanceEntry = DisturbanceEntry()
    peak_mem_gib: float | None = None
    figures: dict[str, Positive] = Field(default_factory=dict)
    """What may be gated beside the rate, by the name in gpu-advisor.toml: those that were
    measured."""
    wait_share: float | None = None
    shares: dict[str, float] = Field(default_factory=dict)
    """Where a unit's time went."""
    effects: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Batch, workers, dtype and the like, as observed."""
    loaded: LoadedEntry | None = None
    """Null where base and head are one folder."""
    notes: list[str] = Field(default_factory=list)


class PairEntry(Part):
    """One process of each arm, run right after each other."""

    number: int
    order: Literal["base first", "head first"]
    base: RunEntry
    head: RunEntry
    discarded: str | None = None
    """Why the pair as a whole does not count."""


class ProgramEntry(Part):
    """One command, run as it is in both arms. It is one workload, or a suite of several."""

    name: str
    command: str
    definition: str
    """Digest of command, unit, patterns and environment: what must be the same in both arms."""
    pairs: list[PairEntry] = Field(default_factory=list)
    warm_ups: list[RunEntry] = Field(default_factory=list)
    """One run of each arm before the first pair: fills caches, proves that it runs at all."""
    known: list[str] = Field(default_factory=list)
    """The workload and those benchmarks of it that base's settings or the history know."""
    no_baseline: str | None = None
    """Why there is nothing to compare with."""
    error: str | None = None
    """Why head could not be measured, or base for a reason that can be mended."""
    stopped: str | None = None
    """Why no more pairs were measured although nothing was decided."""
