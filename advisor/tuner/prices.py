"""What one more short process takes, from those that ran: quiet ones, while most of them were."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from advisor.executor.requests import contended

if TYPE_CHECKING:
    from advisor.model import Run

CEILINGS_S = 1.0
"""A baseline measures its parts alone, each so long."""
APART = 2.0
"""A first process that took so many times what the second did was paying for cold caches."""
DEARER = 3.0
"""A candidate's process is never counted for more than so many usual ones: it was held up. Only
steps that are long by themselves may take more."""
LEAST_STEPS = 12
"""Of a short process: those of its window, and the first ones, which are discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Wall times of short processes, in seconds."""

    quiet_s: tuple[float, ...] = ()
    held_s: tuple[float, ...] = ()
    """Of those that others disturbed: the price on a machine that stays busy."""
    started_s: float = 0.0
    """What it took all processes so far to come to their first steps."""

    def of_baselines(self, originals: tuple[Run, ...]) -> Self:
        """By these alone: without the parts that were measured alone, and without what paid for
        cold caches."""
        short = {}
        for number, run in enumerate(originals):
            parts = run.ceilings.loader if run.ceilings else ()
            alone_s = CEILINGS_S * (len(parts) + 1) if parts else 0.0
            short[number] = max(run.wall_s - alone_s, run.wall_s / 2)
        most_s = APART * min(short.values(), default=0.0)
        prices = replace(self, quiet_s=(), held_s=())
        for number, wall_s in short.items():
            if wall_s <= most_s:
                prices = prices.with_wall(wall_s, held=contended(originals[number]))
        return prices

    def with_wall(self, wall_s: float, *, held: bool) -> Self:
        """After one more process."""
        if held:
            return replace(self, held_s=(*self.held_s, wall_s))
        return replace(self, quiet_s=(*self.quiet_s, wall_s))

    @property
    def process_s(self) -> float:
        """What the next process is to take; 0 before the first ran."""
        most_quiet = len(self.quiet_s) >= len(self.held_s)
        walls_s = self.quiet_s if most_quiet else (*self.quiet_s, *self.held_s)
        return statistics.median(walls_s) if walls_s else 0.0

    def pair_s(self, candidate: Run | None) -> float:
        """What the original and `candidate` take together."""
        return self.process_s + self.again_s(candidate)

    def again_s(self, candidate: Run | None) -> float:
        """What `candidate` takes once more."""
        if candidate is None:
            return self.process_s
        stepping_s = LEAST_STEPS * (candidate.step_ms or 0.0) / 1000.0
        most_s = max(DEARER * self.process_s, self.process_s + stepping_s)
        return min(max(candidate.wall_s, self.process_s), most_s)
