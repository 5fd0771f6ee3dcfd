"""Step series: end times and units of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.analysis.averages import most_common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.events import EventLog

OPTIMIZER, LOADER, FORWARD = "optimizer step", "loader batch", "root forward"
UPDATE = "training step"
"""Step of a program that updates its parameters by itself."""
TRAINING = (OPTIMIZER, UPDATE)

SOURCES = {
    "sample": "batch dimension of the root forwards",
    "token": "tokens of the root forwards, of which the samples cannot be told",
    "step": "steps, of which no layer tells how many samples they hold",
}
"""Way of counting units without a DataLoader."""


@dataclass(slots=True)
class StepSeries:
    """Steps of one kind with bounds and units."""

    kind: str
    source: str = ""
    """Description of how the units were counted."""
    unit: str = "sample"
    """`sample`, else `token` or `step` where samples are unknown."""
    bounds: list[float] = field(default_factory=list)
    units: list[float] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    """Steps in which an epoch, another loader's pass or a sampler's next batch begins."""
    loader: int | None = None
    beside: set[int] = field(default_factory=set)
    """Further loaders whose batches go into the same steps."""
    root: int | None = None
    batch: float | None = None
    """Items of one loader batch, or of one forward where there is no loader."""
    batches_per_step: float = 1.0
    accumulation: float | None = None
    """Backward passes of one optimizer step."""
    forwards_per_unit: float | None = None
    forwards_per_batch: float | None = None
    finished_batches: int = 0
    whole_units: float = 0.0
    gap_s: float | None = None
    """Sampler: time between two batches that no forward fills."""
    iterative: bool = False
    """Many forwards make one unit, and bounds lie between forwards."""
    from_plan: bool = False
    """Forwards per unit came from the plan, not from this process."""
    rollouts: bool = False
    """Samples are collected by the network before it trains on them: cycles count whole."""
    skips: bool = False
    """Some loaded batches were not used."""

    @property
    def steps(self) -> int:
        """Finished steps."""
        return max(0, len(self.bounds) - 1)

    def count_forwards(self, unit: str, items: Sequence[float]) -> None:
        """Count units by forwards of so many items each."""
        self.unit = unit
        self.source = SOURCES[unit]
        self.batch = most_common(items) if unit == "sample" else None


def dominant_module(log: EventLog) -> int | None:
    """Module with parameters that took most time."""
    spent: dict[int, float] = {}
    for call in log.calls:
        spent[call.module] = spent.get(call.module, 0.0) + call.end - call.start
    if log.running is not None and log.inner_calls:
        start, module = log.running
        spent[module] = spent.get(module, 0.0) + max(0.0, log.inner_calls[-1].end - start)
    heavy = {number: s for number, s in spent.items() if log.module(number).parameters}
    pool = heavy or spent
    return max(pool, key=lambda number: pool[number]) if pool else None
