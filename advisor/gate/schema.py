"""Schema of gate.json: raw values and their verdict.

Rates are units per second, above zero and finite; null means not measured.
"""

from typing import Annotated, Literal

from pydantic import Field

from advisor import __version__
from advisor.model import Disturbance, Failure, Machine, Telemetry
from advisor.report.schema import Part
from advisor.settings import GateLimits

Arm = Literal["base", "head"]
RateSource = Literal[
    "throughput line", "probe", "whole-run time", "pytest-benchmark", "benchmark JSON"
]
GateVerdict = Literal[
    "regression", "error", "invalid", "no-baseline", "inconclusive", "pass"
]
"""Worst first, which `verdict.PRECEDENCE` reads: a gate has the worst of its workloads."""
Cause = Literal[
    "slower",
    "not-slower",
    "undecided",
    "unequal-items",
    "less-work",
    "other-unit",
    "same-code",
    "head-failed",
    "head-lacks-it",
    "base-failed",
    "base-lacks-it",
    "unsteady",
    "not-measured",
]
"""Why a workload has its verdict, for code: sentences are for people.

slower, not-slower, undecided: the rates of its pairs. unequal-items: base and head came to items
of other cost, which may explain the difference. less-work: head finished fewer units in a whole
run. other-unit: the rates are not of one kind. same-code: both arms loaded the same files.
unsteady: too many pairs were discarded. not-measured: no pair, or setup failed. head-failed,
base-failed: a run of that arm. head-lacks-it: head did not measure it in every run.
base-lacks-it: base did not, or does not declare it.
"""
GateMode = Literal["ab", "history", "noise"]
Better = Literal["lower", "higher"]
SMALLEST, LARGEST = 1e-100, 1e100
"""Bounds of a rate or figure: no ratio of two overflows, or is rounded to zero."""
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]

ARMS: tuple[Arm, Arm] = ("base", "head")


class Rate(Part):
    """Rate or other figure of one process.

    A process is one sample. Rates of parts of its window are none.
    """

    mean: Positive
    """Units a second: all of them over the time they took. Of a time or size, that value itself."""
    unit: str = "run"
    """What is counted, or the unit of a time or size."""
    better: Better = "higher"
    counted: str | None = None
    """Way in which the probe counted (`Run.way`); null where the program told the rate."""
    slope: float = 0.0
    """Growth of the logarithm of the rate per unit, in the window; 0 within the noise."""
    middle: float = 0.0
    """Units from the start of the run to the middle of the window."""
    work: float | None = None
    """Units finished by a run that went to its own end; null if the window was cut."""


class LoadedEntry(Part):
    """Project files that one run loaded."""

    foreign: list[str] = Field(default_factory=list)
    """Files of the other arm's checkout, relative to it."""
    changed: dict[str, str] = Field(default_factory=dict)
    """Loaded files that differ between the arms, by path: first 16 digits of the SHA-256."""
    cut: bool = False
    """True if the run reported more files than are looked at."""


class RunEntry(Part):
    """One process of one arm."""

    arm: Arm
    wall_s: float
    """Wall time of the whole process."""
    source: RateSource | None = None
    """Origin of the rates; null if there are none."""
    rates: dict[str, Rate] = Field(default_factory=dict)
    """Rates by workload: one, or each benchmark of a suite."""
    figures: dict[str, Rate] = Field(default_factory=dict)
    """Measured figures beside the rate, by their names in gpu-advisor.toml."""
    problem: Failure | None = None
    """Why it gave no rate: a failure of the run, or the kind `no-rate`, where it told none."""
    cut_lines: int = 0
    """Lines of its output that were too long, and searched for a rate by their beginning only."""
    on_gpu: bool = False
    gpu: Telemetry = Telemetry()
    others: Disturbance = Disturbance()
    loaded: LoadedEntry | None = None
    """Null where base and head are one folder."""


class PairEntry(Part):
    """Pair of processes, one of each arm."""

    number: int
    order: Literal["base first", "head first"]
    base: RunEntry
    head: RunEntry
    discarded: str | None = None
    """Reason that the pair as a whole does not count."""

    @property
    def runs(self) -> tuple[RunEntry, RunEntry]:
        """Both processes, base first."""
        return (self.base, self.head)


class ProgramEntry(Part):
    """Command run in both arms."""

    name: str
    command: str
    definition: str
    """Digest of what both arms share: command, unit, patterns, environment."""
    pairs: list[PairEntry] = Field(default_factory=list)
    warm_ups: list[RunEntry] = Field(default_factory=list)
    """One run of each arm before the first pair, to fill caches."""
    known: list[str] = Field(default_factory=list)
    """Names that are not new, as base declares or measured them: the workload, or benchmarks.

    What is not new and cannot be measured in base is an error, else just without a baseline.
    """
    no_baseline: str | None = None
    """Why there is nothing to compare with."""
    error: str | None = None
    """Why head could not be measured, or base for a reason that can be mended."""
    stopped: str | None = None
    """Why no more pairs were measured although nothing was decided."""

    @property
    def kept(self) -> tuple[PairEntry, ...]:
        """Pairs that count."""
        return tuple(pair for pair in self.pairs if not pair.discarded)

    @property
    def runs(self) -> list[RunEntry]:
        """All processes, warm-ups first."""
        return [*self.warm_ups, *(run for pair in self.pairs for run in pair.runs)]


class WorkloadVerdict(Part):
    """Verdict on one workload.

    Percentages are drops of the rate: above 0 is slower. Of a figure that is better lower they are
    its growth: above 0 is worse as well.
    """

    name: str
    program: str
    benchmark: str | None = None
    """Name in the program's suite; null for a program that is one workload."""
    figure: str = "throughput"
    better: Better = "higher"
    threshold: float | None = None
    """Worsening that was allowed, as a share: 0.05 is 5 %; null where nothing was compared."""
    verdict: GateVerdict
    cause: Cause
    reason: str
    slowdown_pct: float | None = None
    """Estimated drop of head's rate against base's."""
    ci_low_pct: float | None = None
    """Lower bound of the slowdown."""
    ci_high_pct: float | None = None
    """Upper bound of the slowdown."""
    confidence: float | None = None
    """Confidence level of the interval, as a share; null where a bound is missing."""
    pairs: int = 0
    """Pairs that count."""
    unit: str = "run"
    source: RateSource | None = None
    base_units_per_s: float | None = None
    """Median rate of base; null for a figure, and for a benchmark that is better lower."""
    head_units_per_s: float | None = None
    """Median rate of head; null where that of base is."""
    noise_pct: float | None = None
    """Spread (one standard deviation) between processes of the same arm."""
    notes: list[str] = Field(default_factory=list)


class Revision(Part):
    """One arm's code."""

    sha: str | None = None
    """Commit of the arm's code; null for a folder outside git."""
    ref: str | None = None
    """The name by which it was asked for."""
    dirty: bool = False
    """It holds changes that are not committed."""


class Inputs(Part):
    """Settings that were fixed before anything was measured."""

    threshold: float = 0.05
    """Largest drop of a rate that is allowed, as a share."""
    seed: int = 0
    """Seed of the random orders within pairs."""
    limits: dict[str, GateLimits] = Field(default_factory=dict)
    """Limits from gpu-advisor.toml in base, by program."""
    allow_removed: list[str] = Field(default_factory=list)
    max_minutes: float = 30
    on_inconclusive: str = "fail"


class GateRecord(Part):
    """gate.json: first the verdict and the figures of the worst workload.

    `verdict`, `slowdown_pct`, both bounds, `confidence` and `pairs` are copied from it.
    """

    verdict: GateVerdict
    slowdown_pct: float | None = None
    ci_low_pct: float | None = None
    ci_high_pct: float | None = None
    confidence: float | None = None
    pairs: int = 0
    discarded_pairs: int = 0
    """Pairs of all programs that do not count."""
    workloads: list[WorkloadVerdict] = Field(default_factory=list)
    """Verdict of each workload, the worst first."""
    schema_version: Literal[4] = 4
    reason: str
    mode: GateMode = "ab"
    tool_version: str = __version__
    created: str = ""
    wall_s: float = 0.0
    inputs: Inputs = Inputs()
    base: Revision = Revision()
    head: Revision = Revision()
    host: Machine | None = None
    validity: str = "unverified"
    """Whether the machine was quiet: `verified`; `busy` and the load of others; or `unverified` and
    why."""
    programs: list[ProgramEntry] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    written_by: Literal["gpu-advisor"] = "gpu-advisor"
    """Marks the file as one that a later call may replace."""


Ruling = Literal["keep", "drop", "undecided"]
RefereeCause = Literal[
    Cause,
    "gain-proven",
    "gain-ruled-out",
    "evidently-slower",
    "no-change",
    "other-work",
    "smaller-model",
    "other-outputs",
    "work-after-the-steps",
    "budget",
    "noise",
]


class GainEntry(Part):
    """Rate of the change over that of base."""

    ratio: float
    low: float | None
    high: float | None
    """Null: nothing bounds that side."""
    confidence: float
    """Confidence level of the interval between both bounds."""


class RatePair(Part):
    """Rates of one pair of processes, by workload or benchmark."""

    order: Literal["base first", "head first"]
    base: dict[str, float]
    head: dict[str, float]
    discarded: str | None = None
    """Reason that the pair does not count."""


class RefereeRecord(Part):
    """What `compare --base-ref --json` prints: the ruling on a change, and what it rests on."""

    verdict: Ruling
    cause: RefereeCause
    reason: str
    """The cause for people."""
    next: str | None = None
    """Command that may decide what is undecided; null where a person has to look."""
    gain: GainEntry | None = None
    """Null where no pair was needed, or none was measured."""
    keep_if: float
    """Gain worth keeping, as a share: 0.02 is 2 %."""
    wrong_at_most: float
    """Chance that such a ruling is wrong, over all looks. For `keep`: that the change gains
    nothing. For any other verdict: that a gain of `keep_if` is dropped."""
    command: str
    base: Revision
    head: Revision
    unit: str | None = None
    counted_by: RateSource | None = None
    pairs: list[RatePair] = Field(default_factory=list)
    processes: int = 0
    """Runs in all, warm-ups among them."""
    seconds: float = 0.0
    notes: list[str] = Field(default_factory=list)
    schema_version: Literal[1] = 1
    """Raised where a field goes or changes its meaning; new fields may come."""
    tool_version: str = __version__
