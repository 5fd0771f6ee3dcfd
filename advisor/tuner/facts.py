"""What is known before the first process, and what the stages say on the way: frozen, all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from advisor.model import JsonScalar

if TYPE_CHECKING:
    from advisor import config as documents
    from advisor import knobs
    from advisor.executor.comparison import Comparison
    from advisor.executor.requests import KnobKey, Variant
    from advisor.model import KnobClass, Run, TuningResult
    from advisor.objective import Objective
    from advisor.quality import QualityJudgement
    from advisor.settings import Workload

Data = tuple[tuple[str, JsonScalar], ...]
"""What a sentence of the report is filled with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document and what was found in it."""

    document: documents.Document
    findings: knobs.Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorData:
    """What earlier calls left."""

    host_noise: float | None = None
    """Relative spread between equal processes, as this host showed it before."""
    quality_reference: tuple[tuple[str, float], ...] = ()
    """The original's quality from before the first rewrite, by measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningContext:
    """All that is known before the first process."""

    sources: tuple[Source, ...]
    """The config, and the command line: a document of its own."""
    workload: Workload
    objective: Objective
    cpus: int
    memory_limit_gib: float
    """What a candidate may use: the target card's usable memory, or this host's RAM."""
    precisions: tuple[str, ...]
    """Compute dtypes that exist on the target, by torch name."""
    cards: int
    """GPUs of this machine; 0 without any."""
    smallest_gain: float
    budget_s: float
    safe: bool = False
    """Nothing that could change rounding or the product may be tried."""
    measure_s: float = 3.0
    earlier: PriorData = field(default_factory=PriorData)

    @property
    def has_gpu(self) -> bool:
        """Whether there is one to compute on."""
        return self.cards > 0

    def source(self, document: str) -> Source:
        """The document of this name, and what was found in it."""
        return next(each for each in self.sources if each.document.name == document)

    def allows(self, knob_class: KnobClass) -> bool:
        """Whether knobs of this class may change."""
        return not self.safe or knob_class in {"free", "training"}

    @property
    def consents(self) -> bool:
        """Whether the user allowed results to change, within a tolerance."""
        return self.workload.numeric_tolerance is not None or bool(self.workload.quality)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobVerdict:
    """What a stage has to say of one knob; whether it changed is not known before the proof."""

    knob: KnobKey
    outcome: TuningResult | Literal["found"]
    """found: a better value was found, and is up for the proof."""
    reason: str
    """A key of the sentences that the report has."""
    data: Data = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """What did not fit into the budget."""

    what: str
    needed_s: float
    remaining_s: float
    """For it: beside what was kept for the proof."""
    matters: bool
    """It could have changed what is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLog:
    """What the stages said so far."""

    settled: tuple[KnobVerdict, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What was faster in one run and is not ours to write."""

    kind: Literal["switch", "loader", "buckets", "training-batch", "together"]
    """together: all others that were proven, at once."""
    title: str
    variant: Variant
    run: Run
    """That was faster."""
    gain: float
    """Of single runs: it plans the rounds, and is told to nobody."""
    data: Data = ()
    knob: KnobKey | None = None
    """training-batch: the knob that would be changed."""
    outcome: Comparison | None = None
    """What the pairs said; None while there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLog:
    """What the declared measures were; empty where none was read."""

    original: tuple[tuple[str, float], ...] = ()
    """Of the config as it was found, on what chooses: later calls count from it."""
    before: tuple[tuple[str, float], ...] = ()
    after: tuple[tuple[str, float], ...] = ()
    judgements: tuple[tuple[str, QualityJudgement], ...] = ()
    """Candidate label and judgement."""
