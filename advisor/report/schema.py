"""report.json: one frozen document; rendering adds nothing to it."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from advisor import numbers
from advisor.errors import OPTIMIZE_EXIT_CODES
from advisor.model import (
    Change,
    Decision,
    Interval,
    LeftOutCause,
    Machine,
    SkipCause,
    TaskKind,
)
from advisor.quality import QualityJudgement

WIDE = 4.0
"""Ratio of high to low from which an interval tells a direction and no size.

Judgement: its ends are then twice and half of the estimate; the report gives the low one alone."""

OptimizeVerdict = Literal["improved", "unchanged", "partial"]


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,  # what is written is written whole
    )


class Gain(Part):
    """Ratio of scores, from interleaved fresh processes."""

    ratio: float
    low: float
    high: float | None
    """Null where the interval is too wide to give a size."""
    pairs: int

    @classmethod
    def of(cls, interval: Interval | None) -> Self | None:
        """The interval in a report."""
        if interval is None:
            return None
        high = None if interval.high > WIDE * interval.low else interval.high
        return cls(ratio=interval.estimate, low=interval.low, high=high, pairs=interval.n)

    @property
    def size(self) -> str:
        """`2.91x`, or `more than 2.71x` where the interval gives no size."""
        return (
            numbers.ratio(self.ratio)
            if self.high
            else f"more than {numbers.ratio(self.low)}"
        )

    @property
    def text(self) -> str:
        """`2.91x (2.71 to 3.12)`; no size where it may be no gain at all."""
        if self.high is None and self.low < 1:
            return f"{numbers.ratio(self.ratio)}, bounds too wide to tell"
        if self.high is None:
            return self.size
        return f"{self.size} ({numbers.factor(self.low)} to {numbers.factor(self.high)})"


class Side(Part):
    """One configuration, before or after. Null: not measured."""

    units_per_s: float | None = None
    """Units of finished work a second, end to end."""
    units_per_s_low: float | None = None
    """Lower 95 % bound of that rate, or the slowest of few processes; null for one process."""
    units_per_s_high: float | None = None
    """Upper 95 % bound of that rate, or the fastest of few processes; null for one process."""
    tokens_per_s: float | None = None
    peak_mem_gib: float | None = None
    """Peak of live tensors on the device; without a device, of the memory of all processes."""
    gpu_mem_used_gib: float | None = None
    """Peak of all that the program's allocator held on the card, freed blocks included."""
    quality: dict[str, float] = Field(default_factory=dict)
    gpu_util_pct: float | None = None
    """Share of time with any kernel at work on the card, as NVML tells it, in percent."""
    figures: dict[str, float] = Field(default_factory=dict)
    """Every metric that can be aimed at or bounded, by name and in its unit."""
    batch: float | None = None
    forwards_per_unit: float | None = None
    shares: dict[str, float] = Field(default_factory=dict)
    """Parts of a unit's time; they add up to 1."""


class TrialEntry(Part):
    """One process of this call, or a run of an earlier call in its place (`reused`)."""

    id: str
    purpose: str
    label: str
    beside: str = ""
    """Settings of the trial that differ from the original, but for batches: `workers 1`."""
    outcome: str
    """`ok`, or the failure's kind."""
    units_per_s: float | None = None
    batch: float | None = None
    workers: int | None = None
    wait_share: float | None = None
    peak_mem_gib: float | None = None
    wall_s: float | None = None
    detail: str = ""
    whatif: str | None = None
    """The change inside the process; null for none."""
    reused: bool = False
    """It was not run: its result is that of an earlier run."""
    repeated: bool = False
    """Others used the machine, so it was run again and nothing rests on it."""


class RoundEntry(Part):
    """Round of a comparison, with both variants."""

    round: int
    before: float
    """Score of the variant before, in the report's `objective_unit`."""
    after: float
    """Score of the variant after, in the same unit."""
    contended: str | None = None
    """The variants that others disturbed, or may have; null for none."""
    counted: bool = True
    """The gain rests on it."""

    @property
    def note(self) -> str:
        """`contended: after, not counted`."""
        contended = f"contended: {self.contended}" if self.contended else ""
        return contended + ("" if self.counted else ", not counted")


class ComparisonEntry(Part):
    """Two variants against each other."""

    purpose: str
    """`confirm`, `whatif`, `quality`."""
    before: str
    """Label of the variant: `original`, `batch 8`."""
    after: str
    gain: Gain | None = None
    rounds: list[RoundEntry] = Field(default_factory=list)


class QualityEntry(Part):
    """Judgement of a quality measure of one candidate."""

    candidate: str
    """Label of the judged changes: `batch 8`."""
    judgement: QualityJudgement


class SuggestionEntry(Part):
    """A proven change that is not applied."""

    title: str
    detail: str
    gain: Gain | None = None
    site: str | None = None
    patch: str | None = None


class CandidateEntry(Part):
    """The best candidate that is not proven."""

    label: str
    ratio: float
    """Gain so far over the original."""
    gain: Gain | None = None
    """Null where no pair of runs has bounds."""

    @property
    def text(self) -> str:
        """`1.38x (0.94 to 2.02) in 2 rounds`."""
        if self.gain is None:
            return f"{numbers.ratio(self.ratio)} in one run, without bounds"
        return f"{self.gain.text} in {numbers.many(self.gain.pairs, 'round')}"

    @property
    def outlook(self) -> str:
        """`Likely, not proven`, unless it may be no gain at all."""
        if self.gain is None:
            return "Faster in one run, not proven"
        if self.gain.low > 1:
            return "Likely, not proven"
        if self.gain.high is None:
            return "Not proven: bounds too wide to tell"
        low, high = numbers.factor(self.gain.low), numbers.factor(self.gain.high)
        return f"Not proven: {low} to {high} is possible"


class SkippedEntry(Part):
    """Task that the budget left out."""

    task: TaskKind
    about: str
    """Label of a candidate, or title of a suggestion; empty where it is of none."""
    rest: bool = False
    """The task began, and this is left of it."""
    needed_s: float
    """Seconds that it would have taken."""
    matters: bool
    """It could have changed what is written."""
    cause: SkipCause = "no-room"


class LeftOutEntry(Part):
    """What ran faster in one run, and is neither written nor suggested."""

    label: str
    """Changes that ran faster: `precision bf16`."""
    ratio: float
    """Gain of that run over the best before it."""
    cause: LeftOutCause
    reason: str
    """A sentence for the report, printed as it is."""
    is_open: bool = False
    """More runs could still judge it."""


class HistoryEntry(Part):
    """An earlier call for the same configs or command."""

    created: str
    outcome: str
    """`3.99x (2.10 to 7.56)`, `not proven`."""
    kept: str
    """Path of its report.json in the state folder."""


class Bottleneck(Part):
    """Largest cost, with measured evidence."""

    name: str
    """A part of `shares`, sampling steps, or unknown."""
    sentence: str
    evidence: list[str] = Field(default_factory=list)


class Report(Part):
    """report.json. The first block is also what `--json` prints."""

    schema_version: Literal[4] = 4
    written_by: Literal["gpu-advisor"] = "gpu-advisor"
    """Marks the file as ours to replace."""
    verdict: OptimizeVerdict
    reason: str
    """Reason of the verdict, and of the end of the search."""
    work_left: bool = False
    """Something worth trying did not fit the budget, or was cut off; the exit code is then 5."""
    gain: Gain | None = None
    """Gain of all changes; null if nothing was changed or confirmed."""
    gain_free: Gain | None = None
    """Gain of the free knobs alone."""
    unit: str
    before: Side
    after: Side
    changes: tuple[Change, ...] = ()
    observed: dict[str, str] = Field(default_factory=dict)
    """What the tuned trials were seen to do alike: `items` of a pass, `updates` of a training."""
    runs: int
    """Processes used by this call."""
    wall_s: float
    config: str
    """Path of the tuned config; empty where a command alone was tuned."""
    tuned_command: str | None = None
    """Set when knobs of the command line were changed."""
    written: str | None = None
    """Path of the tuned config or command; null if nothing was written."""
    report: str

    baseline_note: str = ""
    """Baseline and comparison disagree beyond the interval; empty where they agree."""
    isolation: str | None = None
    """Protection of the user's files; null where nothing ran."""
    isolation_note: str = ""
    """Missing protection, and its cause; empty where there was some."""
    load_note: str = ""
    """Background load; empty on a quiet machine."""
    allocation_note: str = ""
    """CPUs to request from the scheduler; empty where they do not hold the program back."""
    tool_version: str
    created: str
    dry_run: bool = False
    unfinished: bool = False
    """The call ended before its search; it replaces no finished report."""
    command: str
    cwd: str
    machine: Machine
    target: str | None = None
    """The card that was aimed at, with its place; null on a CPU."""
    unseen_card: str = ""
    """The card that the program computed on, where NVML shows none: AMD's, or in a container."""
    target_figures: str = ""
    """One line: memory, bandwidth, dense tensor rates, with the source."""
    memory_limit_gib: float | None = None
    """Largest peak that the search accepted."""
    bottleneck_before: Bottleneck | None = None
    bottleneck_after: Bottleneck | None = None
    decisions: tuple[Decision, ...] = ()
    quality: list[QualityEntry] = Field(default_factory=list)
    """Judgements of quality measures, in the order in which they were made."""
    tolerances: dict[str, str] = Field(default_factory=dict)
    """Declared tolerance of each measure that a written change was held to."""
    quality_note: str = ""
    """What the quality before was measured with; empty for the original itself."""
    comparisons: list[ComparisonEntry] = Field(default_factory=list)
    noise: float | None = None
    """Relative spread between equal runs."""
    too_noisy: bool = False
    """Equal runs differ so much that a large gain may have been overlooked."""
    objective: str = "throughput"
    """The metric that decided."""
    objective_unit: str
    """Unit of the rounds' scores: `tiles/s`."""
    constraints: list[str] = Field(default_factory=list)
    """Bounds that had to hold beside it."""
    restored_constraints: list[str] = Field(default_factory=list)
    """Constraints that the original broke and the result keeps."""
    trials: list[TrialEntry] = Field(default_factory=list)
    candidate: CandidateEntry | None = None
    """The best candidate, where nothing is proven."""
    skipped: list[SkippedEntry] = Field(default_factory=list)
    """Tasks that the budget left out."""
    left_out: list[LeftOutEntry] = Field(default_factory=list)
    """What ran faster and is neither written nor suggested."""
    next_actions: list[str] = Field(default_factory=list)
    """Things to do next, the best first."""
    next_command: str = ""
    """Shell command that does them."""
    diff: str = ""
    """Unified diff of the config."""
    how_to_run: str = ""
    """Shell commands, one a line."""
    how_to_revert: str = ""
    """Shell commands, one a line."""
    suggestions: list[SuggestionEntry] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    history: list[HistoryEntry] = Field(default_factory=list)
    """Earlier calls, the newest first."""

    @property
    def exit_code(self) -> int:
        """What was improved so far does not end a call that leaves work undone."""
        return OPTIMIZE_EXIT_CODES["partial" if self.work_left else self.verdict]

    @property
    def sides(self) -> list[Side]:
        """Columns of the tables: before and after, or only the original."""
        return [self.before, self.after] if self.changes else [self.before]


HEADLINE = tuple(Report.model_fields)[2 : list(Report.model_fields).index("report") + 1]
"""Keys that `optimize --json` prints: the first block, without its mark."""
