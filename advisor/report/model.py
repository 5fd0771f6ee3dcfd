"""report.json: one frozen document that holds all a reader may ask; rendering adds nothing.

Versions of the format:
1  first release
2  comparisons instead of pairs; how busy the machine was; a gain may have no high bound
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION: Final = 2

Value = str | int | float | bool | list[str | int | float | bool | None] | None
OptimizeVerdict = Literal["improved", "unchanged", "partial"]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _only_what_json_can_hold(cls, fields: Any) -> Any:
        """A number that is not finite was not measured; a byte that is no text reads `?`."""
        return _plain(fields)


def _plain(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode()
    if isinstance(content, (list, tuple)):
        return [_plain(entry) for entry in content if not _not_finite(entry)]
    if isinstance(content, dict):
        return {key: _plain(entry) for key, entry in content.items() if not _not_finite(entry)}
    return content


def _not_finite(content: Any) -> bool:
    return isinstance(content, float) and not math.isfinite(content)


class Gain(_Part):
    """Ratio of rates, after over before, from interleaved runs of fresh processes."""

    ratio: float
    low: float
    high: float | None
    """Null where the interval is so wide that it tells a direction and no size."""
    pairs: int


class Side(_Part):
    """One configuration, before or after. Null: not measured."""

    units_per_s: float | None = None
    units_per_s_low: float | None = None
    units_per_s_high: float | None = None
    tokens_per_s: float | None = None
    """Of a language model: beside its samples."""
    latency_p50_ms: float | None = None
    """What the user of a unit waits: half of them no longer."""
    latency_p95_ms: float | None = None
    peak_mem_gib: float | None = None
    quality: dict[str, float] = Field(default_factory=dict)
    gpu_util_pct: float | None = None
    cpu_util_pct: float | None = None
    achieved_tflops: float | None = None
    """Counted on one step of the original: matrix products, convolutions and attention."""
    wait_share: float | None = None
    step_ms: float | None = None
    step_kind: str | None = None
    startup_s: float | None = None
    energy_j_per_unit: float | None = None
    power_w: float | None = None
    batch: float | None = None
    workers: int | None = None
    data_items: int | None = None
    """Items of the data set that its loader goes through in one pass."""
    forwards_per_unit: float | None = None
    compute_units_per_s: float | None = None
    """Rate with the loader bypassed (a cached batch replayed)."""
    shares: dict[str, float] = Field(default_factory=dict)
    """Where a unit's time goes; the parts add up to 1."""


class ChangeEntry(_Part):
    """One value that was changed in the tuned config."""

    path: str
    from_: Value = Field(alias="from")
    to: Value
    class_: str = Field(alias="class")
    kind: str
    document: str


class DecisionEntry(_Part):
    """What became of one knob, and why."""

    path: str
    kind: str
    class_: str = Field(alias="class")
    document: str
    outcome: Literal["changed", "advised", "kept", "refused", "ignored", "listed", "skipped"]
    from_: Value = Field(alias="from")
    to: Value
    why: str
    evidence: list[str] = Field(default_factory=list)
    trials: list[str] = Field(default_factory=list)


class QualityPoint(_Part):
    """One quality measure at one candidate."""

    measure: str
    candidate: str
    value: float | None
    reference: float
    limit: float
    low: float | None = None
    """95 % bounds of the value, the original's taken as it is; null: one run has none."""
    high: float | None = None
    runs: int = 1
    """Pairs of runs with equal seeds, no two alike."""
    items: int = 1
    """Figures of a run that were paired."""
    stage: Literal["chosen", "confirmed"] = "chosen"
    """confirmed: with other seeds than those that chose, and on other items where declared."""
    within: bool
    """Chosen: the value is inside the limit. Confirmed: the whole of its bounds is."""


class TrialEntry(_Part):
    """One process that was run."""

    id: str
    purpose: str
    label: str
    outcome: str
    """`ok`, or the failure's kind."""
    units_per_s: float | None = None
    batch: float | None = None
    workers: int | None = None
    wait_share: float | None = None
    peak_mem_gib: float | None = None
    wall_s: float | None = None
    rate_source: str | None = None
    detail: str = ""
    settings: dict[str, Value] | None = None
    """Values that were other than in the original, by path; null: not kept."""
    whatif: str | None = None
    """What was tried from inside the process beside them; null where nothing was."""
    reused: bool = False
    """Taken from history: measured by an earlier call, not by this one."""
    repeated: bool = False
    """Others disturbed it, so it was run again and nothing rests on it."""
    others_cpus: float | None = None
    """CPUs that other programs kept busy meanwhile."""
    disturbed: bool | None = None
    """Whether its rate had to be counted over time that others disturbed; null: not known."""


class RoundEntry(_Part):
    """One round of a comparison: both arms in fresh processes, order flipped each round."""

    round: int
    before: float
    """What decides, in the report's `objective_unit`."""
    after: float
    disturbed: str | None = None
    """The arms that others disturbed; null if none."""
    counted: bool = True
    """Whether the gain rests on it."""


class ComparisonEntry(_Part):
    """Two arms against each other."""

    purpose: str
    """`confirm`, `whatif`, `quality`."""
    title: str
    before: str
    """What ran: `original`, `batch_size=8`."""
    after: str
    settings: dict[str, Value] | None = None
    """Values of `after` that were other than in the original, by path; null: not kept."""
    gain: Gain | None = None
    rounds: list[RoundEntry] = Field(default_factory=list)


class MachineEntry(_Part):
    """Where it was measured."""

    cpu: str
    cpus: int
    ram_gib: float
    os: str
    gpus: list[str] = Field(default_factory=list)
    gpu_note: str | None = None
    driver: str | None = None
    python: str | None = None
    torch: str | None = None


class TargetEntry(_Part):
    """The card that was aimed at, and what it could do."""

    name: str
    title: str
    present: bool
    stood_in: bool = False
    """Another, larger card ran with its memory capped to this one's."""
    memory_limit_gib: float | None = None
    """Largest peak that the search accepted on this card."""
    figures: str = ""
    """One line: memory, bandwidth, dense tensor rates, with the source."""
    note: str = ""


class AdviceEntry(_Part):
    title: str
    detail: str
    gain: Gain | None = None
    site: str | None = None
    patch: str | None = None


class Bottleneck(_Part):
    """Where the time goes: one word, one sentence, and sentences that each carry a number."""

    name: str
    sentence: str
    evidence: list[str] = Field(default_factory=list)


class Report(_Part):
    """report.json. The first block is also what `--json` prints."""

    schema_version: Literal[2] = SCHEMA_VERSION
    written_by: Literal["gpu-advisor"] = "gpu-advisor"
    """Tells a later call that the file is ours to replace."""
    verdict: OptimizeVerdict
    gain: Gain | None = None
    """Of all changes together; null if nothing was changed or not confirmed."""
    gain_free: Gain | None = None
    """Of the free knobs alone, quality and numeric knobs as they were."""
    unit: str
    before: Side
    after: Side
    changes: list[ChangeEntry] = Field(default_factory=list)
    runs: int
    """Processes used by this call."""
    wall_s: float
    config: str
    """Its path; empty where a command alone was tuned."""
    tuned_command: str | None = None
    """Set when knobs of the command line were changed."""
    written: str | None = None
    """Where the tuned config or command was written; null if nothing was."""
    report: str

    isolation: str | None = None
    """What kept the trials from the user's files; null where nothing ran."""
    unisolated: str = ""
    """That nothing kept them from it, and why; empty where something did."""
    busy: str = ""
    """How busy others kept the machine, where they did; empty if it was quiet."""
    reason: str
    """Why the verdict is what it is, and why the search stopped: one or two sentences."""
    tool_version: str
    created: str
    dry_run: bool = False
    unfinished: bool = False
    """The call ended before its search did: it replaces no report of one that came to its end."""
    workload: str | None = None
    phase: str | None = None
    command: str
    cwd: str
    gain_quality: Gain | None = None
    """Of the numeric, training and quality changes on top of the free ones; null without them."""
    machine: MachineEntry
    target: TargetEntry | None = None
    bottleneck_before: Bottleneck | None = None
    bottleneck_after: Bottleneck | None = None
    decisions: list[DecisionEntry] = Field(default_factory=list)
    quality_proven: bool | None = None
    """Whether what was traded was confirmed by bounds inside the tolerances; null: nothing was."""
    quality: list[QualityPoint] = Field(default_factory=list)
    comparisons: list[ComparisonEntry] = Field(default_factory=list)
    safe: bool = False
    """Only changes that keep rounding and product were allowed."""
    noise_band: float | None = None
    """Relative spread between equal runs: of all of this call, at least that used for ties."""
    tie: float | None = None
    """Relative: rates closer than this were a tie in the search. Never as wide as a great noise."""
    smallest_gain: float = 0.03
    objective: Literal["throughput", "latency", "energy", "cost"] = "throughput"
    """What decided: throughput, latency, energy or cost. A gain is how many times better it is."""
    objective_unit: str = ""
    """Of the figures of the comparisons' rounds; empty: units/s."""
    constraints: list[str] = Field(default_factory=list)
    """What had to hold beside it."""
    mended: list[str] = Field(default_factory=list)
    """Of those, which no run of the original was inside of, and what was written is."""
    price_per_hour: float | None = None
    """What an hour of the machine costs, as gpu-advisor.toml says; null where it does not."""
    trials: list[TrialEntry] = Field(default_factory=list)
    skipped: list[str] = Field(default_factory=list)
    """What did not fit into the budget, or was not tried, and why."""
    diff: str = ""
    """Unified diff of the config."""
    how_to_run: str = ""
    """Shell commands, one a line."""
    how_to_revert: str = ""
    """Shell commands, one a line."""
    advice: list[AdviceEntry] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    files_created: list[str] = Field(default_factory=list)
    """What the command left outside the trials' scratch, relative to its working directory."""


HEADLINE = (
    "verdict",
    "reason",
    "gain",
    "gain_free",
    "unit",
    "before",
    "after",
    "changes",
    "runs",
    "wall_s",
    "config",
    "tuned_command",
    "written",
    "report",
)
"""Keys of the one object that `optimize --json` prints."""
