"""Price of one more short process, in wall time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from advisor.executor.requests import contended

if TYPE_CHECKING:
    from advisor.model import Run

CEILINGS_S = 1.0
"""A baseline measures each of its parts alone for so long."""
COLD_START = 2.0
"""A first process that took so many times the second paid for cold caches."""
DEARER = 3.0
"""A candidate counts for at most so many usual processes, unless its steps are long."""
LEAST_STEPS = 12
"""Steps of a short process: its window, and the first ones, which are discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Wall times of short processes."""

    quiet_s: tuple[float, ...] = ()
    contended_s: tuple[float, ...] = ()
    """Processes that others disturbed: the price on a machine that stays busy."""
    started_s: float = 0.0
    """Time that all processes so far took to their first steps."""

    def of_baselines(self, originals: tuple[Run, ...]) -> Self:
        """Price by these runs alone.

        Parts measured alone and cold starts are left out.
        """
        short = {}
        for number, run in enumerate(originals):
            parts = run.ceilings.loader if run.ceilings else ()
            alone_s = CEILINGS_S * (len(parts) + 1) if parts else 0.0
            short[number] = max(run.wall_s - alone_s, run.wall_s / 2)
        most_s = COLD_START * min(short.values(), default=0.0)
        prices = replace(self, quiet_s=(), contended_s=())
        for number, wall_s in short.items():
            if wall_s <= most_s:
                prices = prices.with_wall(wall_s, contended=contended(originals[number]))
        return prices

    def with_wall(self, wall_s: float, *, contended: bool) -> Self:
        """After one more process."""
        if contended:
            return replace(self, contended_s=(*self.contended_s, wall_s))
        return replace(self, quiet_s=(*self.quiet_s, wall_s))

    @property
    def process_s(self) -> float:
        """Expected wall time of the next process."""
        most_quiet = len(self.quiet_s) >= len(self.contended_s)
        walls_s = self.quiet_s if most_quiet else (*self.quiet_s, *self.contended_s)
        return statistics.median(walls_s) if walls_s else 0.0

    def pair_s(self, candidate: Run | None) -> float:
        """Expected wall time of the original and `candidate` together."""
        return self.process_s + self.again_s(candidate)

    def again_s(self, candidate: Run | None) -> float:
        """Expected wall time of `candidate` once more."""
        if candidate is None:
            return self.process_s
        stepping_s = LEAST_STEPS * (candidate.step_ms or 0.0) / 1000.0
        most_s = max(DEARER * self.process_s, self.process_s + stepping_s)
        return min(max(candidate.wall_s, self.process_s), most_s)
