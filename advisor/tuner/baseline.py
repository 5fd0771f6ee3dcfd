"""Baseline: its rate and its spread."""

from __future__ import annotations

from dataclasses import replace

from advisor import knobs
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.knobs.registry import loader_arguments
from advisor.model import Candidate
from advisor.tuner.state import CEILINGS_S, SearchStep, Trials, TunerState

FEW_PROCESSES = 8
"""A budget that buys fewer has no second baseline: the confirmation repeats the original."""
WAIT_FOR_ITEM = 0.1
"""Part of the budget, from its first step on, for one item of a sampler."""
MOST = 3
"""The third only where two disagree."""
OWN_KINDS = ("batch_size", *loader_arguments())
STEP_SHARES = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original sampling steps that are tried."""


def measure_baseline(state: TunerState) -> Trials[TrialResult | None]:
    """Run the original until its processes agree.

    Returns its failure where it fails.
    """
    forwards: float | None = None
    for number in range(MOST):
        if number and state.originals and not needs_another(state):
            break
        request = baseline_request(state, number, forwards)
        result = yield SearchStep(request=request, state=state)
        state = state.with_result(result)
        if not isinstance(result, TrialResult):
            if state.originals or forwards:
                break  # the budget ended it
            state, forwards = yield from forwards_by_few_steps(state)
            if forwards is None:
                break
            continue
        if result.run is None:
            return state, result
        state = replace(state, originals=(*state.originals, result.run))
    return state, None


def baseline_request(state: TunerState, number: int, forwards: float | None) -> TrialRequest:
    """Run the original to one item, then its parts alone.

    With `forwards` an item is known to take, none has to be finished. Without, a sampler whose
    steps could be fewer is given up after a part of the budget.
    """
    cpus = state.context.cpus
    plan = state.plan(
        Candidate(),
        whole_batches=0 if forwards else 1,
        forwards_per_unit=forwards,
        ceilings_workers=tuple(sorted({0, 1, min(2, cpus), cpus})),
        ceilings_s=CEILINGS_S,
    )
    patient = forwards or number or not with_few_steps(state).changes
    return TrialRequest(
        variant=Variant(),
        purpose="baseline",
        plan=plan,
        fresh=True,
        series=f"{number}",
        limit_s=None if patient else WAIT_FOR_ITEM * state.context.budget_s,
    )


def forwards_by_few_steps(state: TunerState) -> Trials[float | None]:
    """Scale the forwards of an item from a short one."""
    few = with_few_steps(state)
    steps = next((c for c in few.changes if c.kind == "timesteps"), None)
    if steps is None or not isinstance(steps.old, int) or not isinstance(steps.new, int):
        return state, None
    plan = state.plan(few, whole_batches=1)
    variant = Variant(candidate=few)
    request = TrialRequest(variant=variant, purpose="effects", plan=plan, expected_s=1.0)
    result = yield SearchStep(request=request, state=state)
    run = result.run if isinstance(result, TrialResult) else None
    seen = run.effects.forwards_per_unit if run is not None else None
    return state.with_result(result), None if seen is None else seen * steps.old / steps.new


def with_few_steps(state: TunerState) -> Candidate:
    """Candidate with the fewest sampling steps allowed."""
    for knob in state.of_kind("timesteps"):
        if not isinstance(knob.value, int) or not knob.editable:
            continue
        for share in reversed(STEP_SHARES):
            steps = max(tidy_steps(knob.value * share), min(10, knob.value))
            fewer = state.with_value(knob, steps)
            if not isinstance(fewer, knobs.InvalidChange):
                return fewer
    return state.best


def tidy_steps(steps: float) -> int:
    """A count that people would write: two significant digits."""
    whole = max(1, round(steps))
    digits = len(str(whole))
    return round(whole, 2 - digits) if digits > 2 else whole


def needs_another(state: TunerState) -> bool:
    """True if the original deserves one more process."""
    affordable = state.remaining_s > FEW_PROCESSES * state.price_s
    if len(state.originals) == 1:
        return not is_too_small(state) and (affordable or state.remaining_s < state.fewest_s)
    rates = [state.context.objective.score(run) for run in state.originals]
    expected = max(state.context.host_noise or 0.0, state.context.smallest_gain)
    return affordable and max(rates) / min(rates) - 1 > expected


def is_too_small(state: TunerState) -> bool:
    """True if the budget holds no candidate and its confirmation."""
    if len(state.originals) > 1:
        return state.fewest_s > state.remaining_s
    # The first process may have found cold caches, which only its start-up shows.
    run = state.original
    stepping = 1.0 - min(1.0, (run.startup_s or 0.0) / max(run.wall_s, 1e-9))
    return stepping * state.fewest_s > state.remaining_s


def worth_trying(state: TunerState) -> bool:
    """True if a knob or a loader may be tuned."""
    return bool(state.tunable(*OWN_KINDS, "grad_checkpoint", "precision", "timesteps")) or (
        state.original.effects.workers is not None
    )
