"""Context of a search, before the first process."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import config as documents, knobs
from advisor.model import KnobClass
from advisor.objective import Objective
from advisor.settings import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document and the knobs that were found in it."""

    document: documents.Document
    findings: knobs.Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningContext:
    """Program, machine, limits and budget of one search."""

    sources: tuple[Source, ...]
    """The config, and the command line as a document of its own."""
    workload: Workload
    objective: Objective
    cpus: int
    memory_limit_gib: float
    """Usable memory of the target card, or of this host."""
    precisions: tuple[str, ...]
    """Compute dtypes that exist on the target, by torch name."""
    has_gpu: bool
    """The machine has one."""
    smallest_gain: float
    budget_s: float
    safe: bool = False
    """Refuse all that could change rounding or the product."""
    measure_s: float = 3.0
    host_noise: float | None = None
    """Relative spread between equal processes on this host, by earlier calls."""
    quality_reference: tuple[tuple[str, float], ...] = ()
    """Quality by measure from before the first rewrite."""

    def source(self, document: str) -> Source:
        """The document of this name."""
        return next(each for each in self.sources if each.document.name == document)

    def allows(self, knob_class: KnobClass) -> bool:
        """True if knobs of this class may change."""
        return not self.safe or knob_class in {"free", "training"}

    @property
    def consents(self) -> bool:
        """True if the user allowed results to change within a tolerance."""
        return self.workload.numeric_tolerance is not None or bool(self.workload.quality)
