"""How a call means to spend its budget, once its first processes told what one costs.

The stages need no quotas: the search ends where nothing promises more, and each stage keeps
what those after it need. This only says beforehand where that leads.
"""

from typing import NamedTuple

from advisor import numbers
from advisor.tuner import policy
from advisor.tuner.state import (
    TunerState,
)

GATED = ("precision", "timesteps")
"""Kinds whose gain is bought inside a tolerance."""


class TimePlan(NamedTuple):
    """Seconds of the budget, by stage."""

    budget_s: float
    baseline_s: float
    """Spent already."""
    search_s: float
    proof_s: float
    quality_s: float
    """Precision and steps: their runs, their quality and their proof; 0 without consent."""

    @property
    def sentence(self) -> str:
        """`plan of 5 min: baseline 20 s, search 45 s, proof 52 s, quality up to 3 min 3 s`."""
        parts = [
            f"baseline {numbers.duration(self.baseline_s)}",
            f"search about {numbers.duration(self.search_s)}",
            f"proof about {numbers.duration(self.proof_s)}",
        ]
        if self.quality_s:
            parts.append(f"quality up to {numbers.duration(self.quality_s)}")
        return f"plan of {numbers.duration(self.budget_s)}: {', '.join(parts)}"


def plan_of(state: TunerState) -> TimePlan:
    """The plan after the baseline; what has no room is cut from the search."""
    proof_s = min(state.proof_s, state.remaining_s)
    room_s = max(0.0, state.remaining_s - state.search_reserve_s(found=True))
    search_s = min(policy.SEARCH_PROCESSES * state.price_s, room_s)
    gated = state.context.consents and bool(state.tunable(*GATED))
    return TimePlan(
        budget_s=state.context.budget_s,
        baseline_s=state.context.budget_s - state.remaining_s,
        search_s=search_s,
        proof_s=proof_s,
        quality_s=state.remaining_s - proof_s - search_s if gated else 0.0,
    )
