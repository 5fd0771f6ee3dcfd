"""The ledger: what one step is in this program, when each ended, and how many units it finished."""

from __future__ import annotations

from .averages import most_common
from .log import Log

OPTIMIZER, LOADER, FORWARD = "optimizer step", "loader batch", "root forward"
UPDATE = "training step"
"""Of a program that updates its parameters by itself."""
TRAINING = (OPTIMIZER, UPDATE)

SOURCES = {
    "sample": "batch dimension of the root forwards",
    "token": "tokens of the root forwards, of which the samples cannot be told",
    "step": "steps, of which no layer tells how many samples they hold",
}
"""What a unit is where no loader says, and how it was counted."""


class Ledger:
    """Step k runs from bounds[k] to bounds[k + 1] and finished units[k]."""

    def __init__(self, kind: str, source: str) -> None:
        self.kind = kind
        self.source = source
        """How the units were counted, in words."""
        self.unit = "sample"
        """sample, or token or step where the samples cannot be told: a key of SOURCES."""
        self.bounds: list[float] = []
        self.units: list[float] = []
        self.marks: list[int] = []
        """Steps in which a new epoch, a foreign loader or a sampler's next batch begins."""
        self.loader: int | None = None
        self.beside: set[int] = set()
        """Further loaders whose batches go into the same steps."""
        self.root: int | None = None
        self.batch: float | None = None
        """Items of one loader batch, or of one root forward where there is no loader."""
        self.batches_per_step = 1.0
        self.accumulation: float | None = None
        """Backwards of one optimizer step, for the same parameters."""
        self.forwards_per_unit: float | None = None
        self.forwards_per_batch: float | None = None
        self.finished_batches = 0
        self.whole_units = 0.0
        self.gap_s: float | None = None
        """Sampler only: time between two batches that no forward fills."""
        self.iterative = False
        """Many forwards make one unit, and bounds lie between forwards."""
        self.from_plan = False
        """Forwards per unit came from the plan, not from this process."""

    def of_forwards(self, unit: str, items: list[float]) -> None:
        """Units are counted by root forwards of so many items each."""
        self.unit = unit
        self.source = SOURCES[unit]
        self.batch = most_common(items) if unit == "sample" else None

    @property
    def steps(self) -> int:
        """Finished steps."""
        return max(0, len(self.bounds) - 1)


def dominant_root(log: Log) -> int | None:
    """The root module that took most time; loss functions and the like hold no parameters."""
    spent: dict[int, float] = {}
    for enter, end, root, *_ in log.forwards:
        spent[root] = spent.get(root, 0.0) + end - enter
    if log.running is not None and log.inners:
        enter, root = log.running
        spent[root] = spent.get(root, 0.0) + max(0.0, log.inners[-1][1] - enter)
    heavy = {r: s for r, s in spent.items() if log.roots[r].parameters}
    pool = heavy or spent
    return max(pool, key=lambda r: pool[r]) if pool else None
