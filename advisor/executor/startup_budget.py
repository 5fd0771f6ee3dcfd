"""Share of a budget for slow start-ups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.executor.comparison import Comparison
from advisor.executor.requests import SkippedRun

if TYPE_CHECKING:
    from advisor.executor.requests import TrialResult

SLOW_S = 60.0
"""A program that takes longer to its first step is slow to start."""
SHARE = 1 / 3
"""Part of a budget that may go to slow starts."""
WHOLE_SEARCH = 20
"""Processes with which a search lacks little: eight candidates, and six rounds that prove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupBudget:
    """Start-up seconds of processes in one budget."""

    budget_s: float
    usual_s: float = 0.0
    """Start-up of one more process."""
    spent_s: float = 0.0
    """Start-up of the processes that ran."""

    @property
    def slow(self) -> bool:
        """True if start-ups need a limit."""
        return self.usual_s > SLOW_S

    @property
    def left(self) -> float:
        """Number of further processes; infinite without a limit."""
        if not self.slow:
            return math.inf
        return max(0.0, float(math.floor((SHARE * self.budget_s - self.spent_s) / self.usual_s)))

    @property
    def bought(self) -> float:
        """Number of processes that the budget buys in all."""
        return SHARE * self.budget_s / self.usual_s if self.slow else math.inf

    def budget_for(self, more: int) -> float:
        """Budget for `more` processes; 0 if any will do."""
        return (self.spent_s + more * self.usual_s) / SHARE if self.slow else 0.0

    @property
    def whole_s(self) -> float:
        """Budget of a whole search; 0 if any will do."""
        return WHOLE_SEARCH * self.usual_s / SHARE if self.slow else 0.0


def startup_times_s(answer: TrialResult | Comparison | SkippedRun) -> list[float | None]:
    """Start-up time of each process; None if it failed."""
    if isinstance(answer, SkippedRun):
        return []
    if isinstance(answer, Comparison):
        each = [attempt for round_ in answer.rounds for attempt in round_.runs.values()]
    else:
        each = [answer]
    return [a.run.startup_s if a.run else None for a in each if not a.reused]
