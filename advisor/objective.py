"""What is maximised, as a value: whoever compares two runs asks it, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Scores a run, names its unit, and says which way is better."""

    name: str
    field: str
    """The field of `Run` that is the score."""
    per: str
    """What follows the unit of work: `s` in `tiles/s`."""
    higher_is_better: bool = True

    def score(self, run: Run) -> float:
        """The figure that `run` is judged by; above zero."""
        return float(getattr(run, self.field))

    def gain(self, before: float, after: float) -> float:
        """How many times better a score of `after` is than one of `before`."""
        return after / before if self.higher_is_better else before / after

    def log_gain(self, before: Run, after: Run) -> float:
        """The same of two runs on the scale on which gains add up."""
        return math.log(self.gain(self.score(before), self.score(after)))

    def unit(self, units: str) -> str:
        """`tiles/s`, given the unit of work in the plural."""
        return f"{units}/{self.per}"


THROUGHPUT = Objective(name="throughput", field="units_per_s", per="s")
"""Units of work finished per second of wall clock, end to end."""
