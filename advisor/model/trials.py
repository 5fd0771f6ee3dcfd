"""Trial: one process to run, its plan and outcome."""

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Self

from advisor.model.machines import GpuProfile
from advisor.model.runs import JsonScalar, KnobClass, Purpose
from advisor.model.settings import Candidate, Override


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Estimate with its proven bounds; where they come from stands in `stats.py`."""

    estimate: float
    low: float
    high: float
    n: int
    """Independent units (processes or pairs of processes)."""

    def widened(self, share: float) -> Self:
        """Interval of a ratio whose bounds are at least a relative `share` off the estimate."""
        lowest, highest = self.estimate / (1 + share), self.estimate * (1 + share)
        return replace(self, low=min(self.low, lowest), high=max(self.high, highest))


TaskKind = Literal[
    "trial",
    "pass",
    "whole-batch",
    "confirmation",
    "second-confirmation",
    "comparison",
    "quality",
    "quality-reference",
    "quality-confirmation",
]
"""Tasks of a search that take time, and may be left out; `outcomes.TASKS` has them in words."""

SkipCause = Literal["no-room", "time-limit"]
"""Why a task was left out. no-room: the rest of the budget was too short for it; time-limit: it
began, and the limit of a run ended it."""
LeftOutCause = Literal[
    "other-counting",
    "later-items",
    "other-results",
    "other-work",
    "too-much-memory",
    "unfilled-batch",
    "misread-batch",
    "outside-bound",
    "outside-tolerance",
    "not-judged",
    "failed",
]
"""Why what ran faster is neither written nor suggested."""

DecisionOutcome = Literal[
    "changed", "advised", "kept", "refused", "ignored", "listed", "skipped"
]
"""What became of a knob.

changed: the config has a better value. advised: its user may set one. kept: no other value was
better. refused: another value may not be set, or was not kept to. ignored: the program does not
follow it. listed: it was seen and not tuned, by its kind. skipped: the budget ended before it.
"""

DecisionCause = Literal[
    "faster",
    "linked",
    "suggested",
    "not-faster",
    "not-proven",
    "refuted",
    "counts-batches",
    "no-need",
    "no-value-known",
    "invalid",
    "frozen",
    "not-judged",
    "outside-tolerance",
    "ignored",
    "not-applied",
    "other-phase",
    "no-count",
    "unfinished-items",
    "validation",
    "needs-consent",
    "needs-quality",
    "safe",
    "never-alone",
    "out-of-budget",
    "not-reached",
]
"""Why a setting has the value that it has; `decisions.py` in the tuner has a sentence for each."""
OUTCOMES: dict[DecisionCause, DecisionOutcome] = {
    "faster": "changed",
    "linked": "changed",
    "suggested": "advised",
    "not-faster": "kept",
    "not-proven": "kept",
    "refuted": "kept",
    "counts-batches": "kept",
    "no-need": "kept",
    "no-value-known": "kept",
    "invalid": "refused",
    "frozen": "refused",
    "not-judged": "refused",
    "outside-tolerance": "refused",
    "ignored": "ignored",
    "not-applied": "ignored",
    "other-phase": "listed",
    "no-count": "listed",
    "unfinished-items": "listed",
    "validation": "listed",
    "needs-consent": "listed",
    "needs-quality": "listed",
    "safe": "listed",
    "never-alone": "listed",
    "out-of-budget": "skipped",
    "not-reached": "skipped",
}
"""What follows from each cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision about one knob, with its evidence."""

    document: str
    path: str
    kind: str
    knob_class: KnobClass
    outcome: DecisionOutcome
    cause: DecisionCause | None = None
    """None in a report of an earlier version."""
    old: JsonScalar | tuple[JsonScalar, ...]
    new: JsonScalar | tuple[JsonScalar, ...]
    reason: str
    """A sentence for the report, printed as it is."""
    trials: tuple[str, ...] = ()
    """Ids of the search's processes in which the knob had another value."""
    in_phase: bool = True
    """The phase that ran uses it."""
    in_code: bool = False
    """A value of the running program: what is told of it is for its user to write."""


class Advice(NamedTuple):
    """Change that was proven in rounds and that only the user can make, as it is in their code."""

    title: str
    gain: Interval
    detail: str
    """Sentences for the report, printed as is."""
    site: str | None = None
    """Line of code that it is about: `train.py:41`."""
    patch: str | None = None
    """Verified patch of that file; None where none could be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPattern:
    """Figure to read from all that a program prints."""

    name: str
    pattern: str
    """Regular expression; its group 1, if it has one, is the figure."""
    matches: Literal["each", "last", "line"]
    """each: every match in the output; last: its last match; line: the first match in the last line
    that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """Task of the probe inside one process.

    A window is full once it has `measure_s` seconds and `min_steps` steps. What is asked for
    beside it, as the loader alone or a traced step, comes after it and costs the rate nothing.
    """

    mode: Literal["window", "whole", "observe"] = "window"
    """window: stop once full; whole: measure to the end; observe: effects only."""
    measure_s: float = 3.0
    """Seconds that a full window has at least."""
    min_steps: int = 20
    """Steps that a full window has at least."""
    whole_batches: int = 0
    """In window mode, finish at least this many loader batches."""
    longest_s: float | None = None
    """In window mode, stop so long after the first step anyway."""
    validation: bool = False
    """Measure the validations of a training, not its updates."""
    trains: bool | None = None
    """False: it makes no update, so that none is waited for where an optimizer was built."""
    one_seed: bool = False
    """Random generators begin at the probe's seed: runs that draw their first weights draw the
    same. A program that seeds them itself does as without."""
    forwards_per_unit: float | None = None
    """Forwards of one unit as another run counted them: a sampler may then stop inside a batch."""
    ceilings_workers: tuple[int, ...] = ()
    """Numbers of workers by which the loader is run alone after the window; a step is profiled
    before."""
    ceilings_s: float = 1.5
    """Seconds that the loader alone is measured for."""
    trace: bool = False
    """After the window: list operations and storages of a step, to predict."""
    stand_in: GpuProfile | None = None
    """Card the program believes to have, on a host without one."""
    overrides: tuple[Override, ...] = ()
    """Settings that the probe puts in place of the program's own."""
    memory_cap_gib: float | None = None
    """Cap on the CUDA allocator, to emulate a smaller card."""
    unit_regex: str | None = None
    """Count output lines that match; group 1, if any, is the units."""
    figures: tuple[OutputPattern, ...] = ()
    """Figures that the program prints, such as its quality or its own rate."""

    @property
    def whole(self) -> bool:
        """True if a run goes on to the end of an item, or of the program."""
        return self.mode == "whole" or self.whole_batches > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFile:
    """Temporary candidate file beside `original`."""

    original: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Files whose loading the probe records."""

    roots: tuple[str, ...]
    """Folders, links resolved, of executed files to record."""
    names: tuple[str, ...]
    """File names recorded with their hash in any folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Trial of one process, for any engine: plain data, as it may be sent to a node."""

    id: str
    purpose: Purpose
    label: str
    candidate: Candidate
    command: tuple[str, ...]
    """User's argv; the copy of a TrialFile replaces its original there."""
    cwd: str
    scratch: str
    """This trial's own folder: TMPDIR, outputs, probe records, logs."""
    files: tuple[TrialFile, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    plan: MeasurePlan = field(default_factory=MeasurePlan)
    unit: str = "sample"
    start_limit_s: float = 300.0
    """Longest wait for the first step."""
    hang_limit_s: float = 60.0
    """Longest silence after a step."""
    total_limit_s: float = 600.0
    """Longest time of the whole process."""
    steps_limit_s: float | None = None
    """Longest time from first step to window's end; None: the other limits."""
    allow_writes: bool = False
    """Let an unisolated program write to the user's existing files."""
    spared: tuple[str, ...] = ()
    """Absolute paths never written; under Landlock nothing is made beside them."""
    foreign: bool = False
    """The program may be hostile, such as the head of a gate."""
    hidden: tuple[str, ...] = ()
    """Folders the program cannot read."""
    shown: tuple[str, ...] = ()
    """Paths in `hidden` that the program still sees."""
    network: bool = True
    """Leave the network open, where the host could close it."""
    made: tuple[str, ...] = ()
    """Files that earlier trials created, relative to `cwd` or absolute."""
    caches: str | None = None
    """Folder of what trials add to caches, for the call's later trials."""
    origins: Origins | None = None
