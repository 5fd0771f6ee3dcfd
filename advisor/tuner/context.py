"""What a search is given: documents with their settings, the machine, what it may do and take."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from advisor import config as documents, knobs
from advisor.model import KnobClass
from advisor.objective import Objective
from advisor.settings import Workload


class Source(NamedTuple):
    """A document that holds settings, and the knobs that were found in it."""

    document: documents.Document
    findings: knobs.Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningContext:
    """All that is known before the first trial; only knobs that trials show are added to it."""

    sources: tuple[Source, ...]
    """The configs, then the command line; later also the running program."""
    workload: Workload
    objective: Objective
    cpus: int
    """CPUs of this host that the program may use."""
    memory_limit_gib: float
    """Usable memory of the target card, or of this host where there is none."""
    host_memory_gib: float = math.inf
    """Memory of this host that the program may use."""
    precisions: tuple[str, ...]
    """Compute dtypes of the target, by torch name."""
    has_gpu: bool
    smallest_gain: float
    """Least gain that is worth a change, as a share: 0.03 is 3 %."""
    budget_s: float
    """Seconds that the whole search may take."""
    safe: bool = False
    """Refuse all that could change rounding or the product."""
    measure_s: float = 3.0
    """Seconds of a trial's window."""
    quality_reference: tuple[tuple[str, float], ...] = ()
    """Quality by measure, from before the first call that wrote something; empty: none is kept."""

    def allows(self, knob_class: KnobClass) -> bool:
        """True if knobs of this class may be tried."""
        return not self.safe or knob_class in {"free", "training"}

    @property
    def consents(self) -> bool:
        """True if results may change within a tolerance."""
        return self.workload.numeric_tolerance is not None or bool(self.workload.quality)
