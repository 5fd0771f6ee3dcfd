"""gate.json: every raw value of one gate, and its verdict. `replay` decides again from it.

Versions of the format:
1  first release

Rates are units per second, above zero and finite; a run that has none carries a problem instead.
Null means not measured.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION: Literal[1] = 1

Verdict = Literal["pass", "regression", "inconclusive", "no-baseline", "invalid", "error"]
Arm = Literal["base", "head"]
Mode = Literal["ab", "replay", "history", "calibrate", "bisect"]
Statistic = Literal["mean", "median"]
Metric = Literal["throughput", "probe", "run-time"]
"""throughput: the best source there is; the others: that source alone."""
Source = Literal[
    "throughput line", "probe", "whole-run time", "pytest-benchmark", "Google Benchmark", "asv"
]

ARMS: tuple[Arm, Arm] = ("base", "head")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,  # what is written is written whole
    )


class Rate(_Part):
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


class Problem(_Part):
    """Why one process gave no rate."""

    kind: str
    """A failure kind of the trials, or `no-rate`."""
    evidence: str
    next_step: str = ""


class GpuReadings(_Part):
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


class NeighbourEntry(_Part):
    """Another program that was at work on the host."""

    name: str
    """Its command name."""
    cpus: float
    """CPUs it kept busy: 0.5 is half of one."""


class DisturbanceEntry(_Part):
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


class LoadedEntry(_Part):
    """Which project files one run was made of, as far as Python ran them."""

    own: int = 0
    """Files of its own checkout."""
    foreign: list[str] = Field(default_factory=list)
    """Files of the other arm's checkout, relative to it."""
    changed: dict[str, str] = Field(default_factory=dict)
    """Files that differ between base and head: a digest of what was loaded."""


class RunEntry(_Part):
    """One process of one arm."""

    arm: Arm
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


class PairEntry(_Part):
    """One process of each arm, run right after each other."""

    number: int
    order: Literal["base first", "head first"]
    base: RunEntry
    head: RunEntry
    discarded: str | None = None
    """Why the pair as a whole does not count."""


class ProgramEntry(_Part):
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


class MovedEntry(_Part):
    """One figure of the profiled runs."""

    what: str
    base: str
    head: str
    change: str = ""


class Attribution(_Part):
    """What moved, from one profiled run of each arm outside the timed set."""

    program: str
    sentence: str
    moved: list[MovedEntry] = Field(default_factory=list)


class CommitEntry(_Part):
    """A commit of a range."""

    sha: str
    subject: str


class BisectStep(_Part):
    """One commit of the range, measured against the good end."""

    commit: CommitEntry
    found: Literal["good", "bad", "skipped"]
    reason: str
    slowdown_pct: float | None = None
    ci_low_pct: float | None = None
    ci_high_pct: float | None = None
    pairs: int = 0
    programs: list[ProgramEntry] = Field(default_factory=list)
    """Raw values; `inputs` of the step are those of the record with its `threshold`."""


class Bisection(_Part):
    """The search for the first bad commit of a range."""

    commits: int
    """In the range."""
    first_parent: bool
    workload: str | None = None
    """What is slower at the bad end, and was sought; null if nothing is."""
    threshold: float | None = None
    """The share that told good from bad: what is allowed, or half of the whole loss."""
    steps: list[BisectStep] = Field(default_factory=list)
    suspects: list[CommitEntry] = Field(default_factory=list)
    """Commits any of which can be the first bad one; one if it was found."""


class CalibrationEntry(_Part):
    """What pairs of equal runs say about a runner and a workload."""

    workload: str
    pairs: int
    noise_pct: float | None
    """Spread (one standard deviation) between equal processes."""
    provable_pct: dict[int, float]
    """By number of pairs: the slowdown that turns red by then nine times in ten, at the threshold
    asked. No regression falls with fewer pairs than the first of them."""
    pairs_needed: int | None
    """By which equal runs pass nine times in ten, at the threshold asked; null if they do not."""
    threshold_pct: float | None
    """The smallest threshold, in whole percent, at which equal runs pass nine times in ten; null
    with too few pairs to tell."""
    statistic: Statistic
    """What should decide here: mean, unless the median of windows is clearly truer."""
    placebo: str
    """What the rule says of these equal runs."""
    two_groups_pct: float | None
    """Distance of two groups of runs, if they fall into two."""


class Acceptance(_Part):
    """A slowdown that a maintainer lets pass once."""

    workload: str
    up_to: float
    """The largest share."""
    by: Literal["label", "base's settings"]
    who: str | None
    """Null where the event does not tell who set the label."""
    why: str


class WorkloadVerdict(_Part):
    """What was decided on one workload. Percentages are drops of the rate: above 0 is slower.

    Of another figure than the rate they are its growth: above 0 is worse as well.
    """

    name: str
    figure: str = "throughput"
    threshold: float | None = None
    """The share that was allowed; null where nothing was compared."""
    verdict: Verdict
    reason: str
    slowdown_pct: float | None = None
    ci_low_pct: float | None = None
    ci_high_pct: float | None = None
    mde_pct: float | None = None
    """The slowdown that would have turned red nine times in ten, at the noise that was seen, the
    threshold, and the pairs that the gate may take. In mode history: the drop called red."""
    pairs: int = 0
    discarded_pairs: int = 0
    unit: str = "run"
    source: Source | None = None
    base_units_per_s: float | None = None
    head_units_per_s: float | None = None
    noise_pct: float | None = None
    """Spread (one standard deviation) between processes of the same arm."""
    t_low_pct: float | None = None
    t_high_pct: float | None = None
    """Student's interval at the same level, for comparison only."""
    faster: bool = False
    accepted: Acceptance | None = None
    """Of a regression: by whom it is let pass; then it does not make the gate red."""
    notes: list[str] = Field(default_factory=list)


class Revision(_Part):
    """One arm's code."""

    sha: str | None = None
    ref: str | None = None
    dirty: bool = False


class Inputs(_Part):
    """What was decided before anything was measured."""

    threshold: float = 0.05
    alpha: float = 0.05
    looks: list[int] = Field(default_factory=lambda: [5, 9, 12, 17, 24])
    cap_rule: bool = False
    statistic: Statistic = "mean"
    metric: Metric = "throughput"
    smallest_loss: float = 0.02
    """Of what is lost for good in a history: the least share that counts."""
    limits: dict[str, dict[str, float]] = Field(default_factory=dict)
    """By program and figure: the share that gpu-advisor.toml of the base side allows."""
    accepted: list[Acceptance] = Field(default_factory=list)
    """What was accepted of this request, or commit."""
    only: str | None = None
    """The one comparison that decides; null for all."""
    allow_removed: list[str] = Field(default_factory=list)
    max_minutes: float = 30
    on_inconclusive: str = "fail"
    on_invalid: str = "fail"


class HostEntry(_Part):
    """Where it ran."""

    key: str = ""
    """Digest of stable facts only."""
    cpu: str = ""
    cpus: int | None = None
    ram_gib: float | None = None
    os: str = ""
    gpus: list[str] = Field(default_factory=list)
    driver: str | None = None
    power_limit_w: float | None = None
    boot_id: str | None = None
    cpu_governor: str | None = None
    load_1min: float | None = None
    python: str | None = None
    torch: str | None = None
    clocks: str = "not locked"


class Headline(_Part):
    """What `gate --json` prints, and the first block of gate.json."""

    verdict: Verdict
    slowdown_pct: float | None = None
    ci_low_pct: float | None = None
    ci_high_pct: float | None = None
    mde_pct: float | None = None
    pairs: int = 0
    discarded_pairs: int = 0
    workloads: list[WorkloadVerdict] = Field(default_factory=list)


class GateRecord(Headline):
    """gate.json."""

    schema_version: Literal[1] = SCHEMA_VERSION
    reason: str
    mode: Mode = "ab"
    tool_version: str
    created: str
    wall_s: float = 0.0
    inputs: Inputs = Inputs()
    base: Revision = Revision()
    head: Revision = Revision()
    host: HostEntry = HostEntry()
    validity: str = "unverified"
    """`verified`; `busy` and what others held; or `unverified` and why."""
    programs: list[ProgramEntry] = Field(default_factory=list)
    attribution: list[Attribution] = Field(default_factory=list)
    bisection: Bisection | None = None
    """Null in other modes. The figures above are those of the bad end."""
    calibration: list[CalibrationEntry] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    written_by: Literal["gpu-advisor"] = "gpu-advisor"
    """Tells a later call that the file is ours to replace; last, because there it is looked for."""
