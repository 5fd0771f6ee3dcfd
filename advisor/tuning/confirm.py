"""The proof: original and winner in fresh processes, interleaved, order flipped every round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.model import Candidate, Failure, Interval, Run
from advisor.stats import ratio_interval

if TYPE_CHECKING:
    from advisor.tuning.search import Search

ROUNDS = 6
"""The fewest pairs whose exact 95 % bounds are finite."""
ROUNDS_SMALL_GAIN = 10
SMALL_GAIN = 1.3
"""Below this expected ratio more pairs are planned, beforehand; none is added after a look."""
MARGIN = 1.1
"""Processes differ, and a proof that was begun is finished: this keeps it inside the budget."""


@dataclass(kw_only=True)
class Confirmation:
    """Rates of every round by arm: `before`, `free`, `after`."""

    arms: dict[str, Candidate]
    rates: dict[str, list[float]] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failure: Failure | None = None
    """What stopped the confirmation; nothing is proven then."""

    def ratio(self, before: str, after: str) -> Interval | None:
        """Rate of `after` over `before` with its bounds; None without complete rounds of both."""
        if self.failure or not self.rates.get(before) or not self.rates.get(after):
            return None
        rounds = min(len(self.rates[before]), len(self.rates[after]))
        return ratio_interval(self.rates[before][:rounds], self.rates[after][:rounds])


def arms_of(winner: Candidate) -> dict[str, Candidate]:
    """Arms that prove a winner: its free and training part apart from the rest."""
    free = winner.only("free", "training")
    arms = {"before": Candidate()}
    if free.changes and free.key != winner.key:
        arms["free"] = free
    arms["after"] = winner
    return arms


def rounds_for(expected_ratio: float) -> int:
    """How many rounds an expected gain deserves."""
    return ROUNDS if expected_ratio >= SMALL_GAIN else ROUNDS_SMALL_GAIN


def cost_s(search: Search, arms: int, expected_ratio: float) -> float:
    """What a confirmation and the report will take, from what processes took so far."""
    return MARGIN * rounds_for(expected_ratio) * arms * search.expected_s()


def reserve_s(search: Search) -> float:
    """What the search must leave for the proof of the best so far, or of a gain yet to be found."""
    best = search.best
    ratio = best.units_per_s / search.original.units_per_s if best is not None else 1.0
    arms = 3 if search.workload.quality else len(arms_of(search.best_candidate))
    cost = cost_s(search, max(arms, 2), ratio if search.best_candidate.changes else 2.0)
    return min(cost, 0.6 * search.runner.budget_s)


def confirm(search: Search, winner: Candidate, expected_ratio: float) -> Confirmation:
    """Run the rounds; an arm that fails ends them.

    The winner finishes a whole item once, here if it has not yet; the original did as the baseline.
    """
    proof = Confirmation(arms=arms_of(winner))
    names = list(proof.arms)
    search.runner.reserve_s = lambda: 0.0
    unfinished = search.iterative and not search.finished_whole(winner)
    for round_ in range(rounds_for(expected_ratio)):
        for name in names if round_ % 2 == 0 else reversed(names):
            whole = unfinished and round_ == 0 and name == "after"
            result = search.run(
                proof.arms[name], "confirm", fresh=True, whole_batches=1 if whole else 0
            )
            if isinstance(result, Failure):
                proof.failure = result
                return proof
            proof.rates.setdefault(name, []).append(result.units_per_s)
            proof.runs.setdefault(name, []).append(result)
    return proof


def proven(interval: Interval | None, smallest_gain: float) -> bool:
    """Whether the whole interval lies above the smallest gain worth a change."""
    return interval is not None and interval.low > 1 + smallest_gain
