"""The proof: original and winner in fresh processes, interleaved, order flipped every round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.model import Candidate, Failure, Interval, Run
from advisor.stats import ratio_interval
from advisor.tuning.runner import OverBudgetError

if TYPE_CHECKING:
    from advisor.tuning.search import Search

ROUNDS = 6
"""The fewest pairs whose exact 95 % bounds are finite."""
ROUNDS_SMALL_GAIN = 10
SMALL_GAIN = 1.3
"""Below this expected ratio more pairs are needed in any case."""
MOST_ROUNDS = 20
"""More narrow the bounds too slowly to be worth their time."""
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


def fewest_rounds(expected_ratio: float) -> int:
    """The rounds without which an expected gain need not be put to the proof."""
    return ROUNDS if expected_ratio >= SMALL_GAIN else ROUNDS_SMALL_GAIN


def planned_rounds(search: Search, arms: int, expected_ratio: float) -> int:
    """Rounds that the noise of this host asks for, as far as the budget allows.

    Fixed before the first round; none is added after a look. The bounds of n pairs of processes
    with a relative spread s are about 3.5 s / sqrt(n) wide to each side, and twice as many pairs
    leave room for a gain that was flattered when it was chosen.
    """
    fewest = fewest_rounds(expected_ratio)
    gap = math.log(expected_ratio / (1 + search.smallest_gain)) if expected_ratio > 0 else 0.0
    wanted = math.ceil(2 * (3.5 * search.noise / gap) ** 2) if gap > 0 else MOST_ROUNDS
    left_s = search.runner.budget_s - search.runner.spent_s
    affordable = int(left_s / max(cost_s(search, arms, expected_ratio) / fewest, 1e-9))
    return max(fewest, min(wanted, affordable, MOST_ROUNDS))


def cost_s(search: Search, arms: int, expected_ratio: float) -> float:
    """What the shortest proof and the report will take, from what processes took so far."""
    return MARGIN * fewest_rounds(expected_ratio) * arms * search.expected_s()


def reserve_s(search: Search) -> float:
    """What the search must leave for the proof of the best so far, or of a gain yet to be found."""
    best = search.best
    ratio = best.units_per_s / search.original.units_per_s if best is not None else 1.0
    apart = search.workload.quality or search.workload.numeric_tolerance is not None
    arms = 3 if apart else len(arms_of(search.best_candidate))
    cost = cost_s(search, max(arms, 2), ratio if search.best_candidate.changes else 2.0)
    return min(cost, 0.6 * search.runner.budget_s)


def affordable_arms(
    search: Search, winner: Candidate, expected_ratio: float
) -> dict[str, Candidate]:
    """Arms of a proof that fits into the budget; empty where none does, and what is left out said.

    The free part alone is given up before the proof of the winner is.
    """
    left_s = search.runner.budget_s - search.runner.spent_s
    arms = arms_of(winner)
    if "free" in arms and cost_s(search, len(arms), expected_ratio) > left_s:
        search.skipped.append(
            f"The proof of {arms['free'].label} alone: three arms would have needed "
            f"{cost_s(search, len(arms), expected_ratio):.0f} s of the {left_s:.0f} s left."
        )
        del arms["free"]
    needed_s = cost_s(search, len(arms), expected_ratio)
    if needed_s <= left_s:
        return arms
    search.skipped.append(
        f"The confirmation of {winner.label}: it needs {needed_s:.0f} s and {left_s:.0f} s of the "
        "budget are left. Call again with a larger --budget; what was measured is kept and not "
        "run again."
    )
    return {}


def confirm(
    search: Search, winner: Candidate, arms: dict[str, Candidate], expected_ratio: float
) -> Confirmation:
    """Run the rounds; an arm that fails ends them.

    The winner finishes a whole item once, here if it has not yet; the original did as the baseline.
    Where the budget ends before the rounds do, those that are complete must do.
    """
    proof = Confirmation(arms=arms)
    names = list(proof.arms)
    search.runner.reserve_s = lambda: 0.0
    unfinished = search.iterative and not search.finished_whole(winner)
    for round_ in range(planned_rounds(search, len(names), expected_ratio)):
        for name in names if round_ % 2 == 0 else reversed(names):
            whole = unfinished and round_ == 0 and name == "after"
            try:
                result = search.run(
                    proof.arms[name], "confirm", fresh=True, whole_batches=1 if whole else 0
                )
            except OverBudgetError as problem:  # processes became slower than they were
                search.over_budget("the rest of the confirmation", problem)
                return proof
            if isinstance(result, Failure):
                proof.failure = result
                return proof
            proof.rates.setdefault(name, []).append(result.units_per_s)
            proof.runs.setdefault(name, []).append(result)
    return proof


def proven(interval: Interval | None, smallest_gain: float) -> bool:
    """Whether the whole interval lies above the smallest gain worth a change."""
    return interval is not None and interval.low > 1 + smallest_gain


def proven_candidate(proof: Confirmation | None, smallest_gain: float) -> Candidate:
    """The most that was proven: the winner, else its free part, else the original.

    What trades results must have gained on top of the free part, or it is not written.
    """
    if proof is None:
        return Candidate()

    def holds(over: str, arm: str) -> bool:
        return arm in proof.arms and proven(proof.ratio(over, arm), smallest_gain)

    if holds("before", "free") and not holds("free", "after"):
        return proof.arms["free"]
    return proof.arms["after"] if holds("before", "after") else Candidate()
