"""How a call means to spend its budget, once its first processes told what one costs.

The stages need no quotas: the search ends where nothing promises more, and each stage keeps
what those after it need. This only says beforehand where that leads.
"""

from typing import NamedTuple

from advisor import numbers
from advisor.tuner import policy, reserves
from advisor.tuner.stages import SearchStep

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
    suggestions_s: float
    """What only the user may change; 0 where quality has the rest before them."""

    @property
    def sentence(self) -> str:
        """`plan of 5 min: baseline 20 s, search about 45 s, proof about 52 s, quality up to 3 min`.

        Without a setting that may be written there is no search of one, and no proof.
        """
        told = (
            ("baseline", self.baseline_s),
            ("search about", self.search_s),
            ("proof about", self.proof_s),
            ("quality up to", self.quality_s),
            ("suggestions up to", self.suggestions_s),
        )
        parts = [f"{name} {numbers.duration(seconds)}" for name, seconds in told if seconds]
        return f"plan of {numbers.duration(self.budget_s)}: {', '.join(parts)}"


def plan_of(step: SearchStep) -> TimePlan:
    """The plan at the first trial behind the baseline; what has no room is cut from the search.

    That trial tells what there is to search: settings of configs and options come first, so where
    it is of a suggestion there is none of them, and no proof.
    """
    state, purpose = step.state, step.request.purpose
    proof_s = 0.0 if state.by_hand else min(reserves.proof_s(state), state.remaining_s)
    room_s = max(0.0, state.remaining_s - reserves.search_reserve_s(state, to_prove=True))
    usual_s = policy.SEARCH_PROCESSES * state.costs.price_s
    search_s = min(usual_s, room_s) if purpose == "search" else 0.0
    rest_s = state.remaining_s - proof_s - search_s
    gated = state.context.consents and bool(state.tunable(*GATED)) and not state.by_hand
    return TimePlan(
        budget_s=state.context.budget_s,
        baseline_s=state.context.budget_s - state.remaining_s,
        search_s=search_s,
        proof_s=proof_s,
        quality_s=rest_s if gated else 0.0,
        suggestions_s=0.0 if gated else rest_s,
    )
