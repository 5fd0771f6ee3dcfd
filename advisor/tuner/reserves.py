"""Seconds of the budget that are kept beside a trial: what it finds is worth its proof only.

A trial that leaves no room for rounds can show nothing that may be written.
"""

import statistics

from advisor.tuner import policy
from advisor.tuner.state import TunerState


def round_s(state: TunerState) -> float:
    """Seconds of a round that confirms the best candidate, with a margin."""
    confirmed = state.confirmation_runs(state.best.only("free", "training"))
    base_s = state.costs.again_s(confirmed[-1]) if confirmed else state.costs.price_s
    return policy.ROUND_FACTOR * (base_s + state.costs.again_s(state.best_run))


def proof_s(state: TunerState) -> float:
    """Seconds that are planned for a proof.

    As many rounds as a quarter of the budget buys processes, from the fewest up to those with
    exact bounds (with a declared tolerance, up to GOOD_ROUNDS). Where other programs delay the
    processes, rounds will be repeated: then their delay is planned for, up to half of the
    budget.
    """
    round_limit = policy.GOOD_ROUNDS if state.context.consents else policy.MOST_RESERVED
    bought = int(state.context.budget_s / max(state.costs.price_s, 1e-9) / 4)
    planned_s = round_s(state) * min(round_limit, max(policy.FEWEST_ROUNDS, bought))
    recent = state.costs.delays[-policy.RECENT_PROCESSES :]
    if len(recent) < policy.FEWEST_ROUNDS:
        return planned_s
    delay = statistics.quantiles(recent, method="inclusive")[-1]
    delayed_s = policy.GOOD_ROUNDS * round_s(state) * delay
    return max(planned_s, min(delayed_s, state.context.budget_s / 2))


def reserve_s(state: TunerState) -> float:
    """Seconds kept beside the next trial to confirm the best candidate."""
    return reserve_for(state, to_prove=state.is_unproven)


def reserve_for(state: TunerState, *, to_prove: bool) -> float:
    """Seconds kept beside the next trial: for a whole proof once there is something to prove.

    Without anything `to_prove`, up to half of the budget would be kept for nothing while settings
    stay untried. The fewest rounds are kept all the same: what is found without any left is lost.
    """
    least_s = policy.FEWEST_ROUNDS * round_s(state)
    return proof_s(state) if to_prove else min(proof_s(state), least_s)


def search_reserve_s(state: TunerState, *, to_prove: bool) -> float:
    """Seconds that a search of free settings keeps: for their proof, and for sampling steps.

    For the steps only where the budget holds both, with the search itself and its proof.
    """
    kept_s = reserve_for(state, to_prove=to_prove)
    if not judges_steps(state):
        return kept_s
    search_s = (len(state.originals) + policy.SEARCH_PROCESSES) * state.costs.price_s
    judging_s = policy.JUDGING_PROCESSES * state.costs.price_s
    holds_both = proof_s(state) + search_s + judging_s <= state.context.budget_s
    return kept_s + (judging_s if holds_both else 0.0)


def judges_steps(state: TunerState) -> bool:
    """True if sampling steps are still to be tried, with a declared quality to judge them."""
    wanted = bool(state.context.workload.quality) and not state.context.safe
    return wanted and any(
        state.verdict_on(knob) is None for knob in state.tunable("timesteps")
    )


def gated_reserve_s(state: TunerState) -> float:
    """Seconds kept to confirm a gated candidate on top of a proven one."""
    return min(proof_s(state), policy.GATED_ROUNDS * round_s(state))


def fewest_s(state: TunerState) -> float:
    """Fewest seconds in which one candidate can be tried and confirmed."""
    return state.costs.price_s + policy.FEWEST_ROUNDS * round_s(state)


def budget_for(state: TunerState, more_s: float) -> float:
    """Budget to name to the user: the present one and `more_s` of processes, with a margin."""
    return policy.NAMED_BUDGET_FACTOR * (state.context.budget_s + more_s)
