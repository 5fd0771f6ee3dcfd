"""gate.json: every raw value of one gate, and its verdict. `replay` decides again from it.

Versions of the format:
1  first release

Rates are units per second, above zero and finite; a run that has none carries a problem instead.
Null means not measured.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from advisor.gate.entries import Part, ProgramEntry, Source, Statistic

SCHEMA_VERSION: Literal[1] = 1

Verdict = Literal["pass", "regression", "inconclusive", "no-baseline", "invalid", "error"]
Mode = Literal["ab", "replay", "history", "calibrate", "bisect"]
Metric = Literal["throughput", "probe", "run-time"]
"""throughput: the best source there is; the others: that source alone."""


class MovedEntry(Part):
    """One figure of the profiled runs."""

    what: str
    base: str
    head: str
    change: str = ""


class Attribution(Part):
    """What moved, from one profiled run of each arm outside the timed set."""

    program: str
    sentence: str
    moved: list[MovedEntry] = Field(default_factory=list)


class CommitEntry(Part):
    """A commit of a range."""

    sha: str
    subject: str


class BisectStep(Part):
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


class Bisection(Part):
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


class CalibrationEntry(Part):
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


class Acceptance(Part):
    """A slowdown that a maintainer lets pass once."""

    workload: str
    up_to: float
    """The largest share."""
    by: Literal["label", "base's settings"]
    who: str | None
    """Null where the event does not tell who set the label."""
    why: str


class WorkloadVerdict(Part):
    """What was decided on one workload. Percentages are drops of the rate: above 0 is slower.

    Of another figure than the rate they are its growth: above 0 is worse as well.
    """

    name: str
    figure: str = "throughput"
    better: Literal["lower", "higher"] = "higher"
    """Which way the figure is better."""
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


class Revision(Part):
    """One arm's code."""

    sha: str | None = None
    ref: str | None = None
    dirty: bool = False


class OwnFigure(Part):
    """A figure in the program's own output."""

    pattern: str
    better: Literal["lower", "higher"]


class Inputs(Part):
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
    own_figures: dict[str, dict[str, OwnFigure]] = Field(default_factory=dict)
    """By program: those among them that its output tells."""
    accepted: list[Acceptance] = Field(default_factory=list)
    """What was accepted of this request, or commit."""
    only: str | None = None
    """The one comparison that decides; null for all."""
    allow_removed: list[str] = Field(default_factory=list)
    max_minutes: float = 30
    on_inconclusive: str = "fail"
    on_invalid: str = "fail"


class HostEntry(Part):
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


class Headline(Part):
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
