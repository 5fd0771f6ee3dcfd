"""Memory of a training step, part by part, and the size that each part grows with."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.machine.readings import GIB

if TYPE_CHECKING:
    from advisor.model import Run

GROWS_WITH = {
    "model": "the parameters",
    "gradients": "the parameters",
    "optimizer": "the parameters: twice for Adam, once for SGD with momentum",
    "activations": "batch, depth and input size; gradient checkpointing holds fewer",
    "workspace": "the parameters, or the largest layer",
}


def lines(run: Run) -> list[str]:
    """Parts of a step at its peak, one a line; none where that was not measured."""
    if run.footprint is None or not run.footprint.whole:
        return []
    parts = asdict(run.footprint)
    return [
        f"{numbers.memory(size / GIB):>10}  {name} ({numbers.percent(size / run.footprint.whole)}; "
        f"grows with {GROWS_WITH[name]})"
        for name, size in parts.items()
    ]
