"""Baseline: its rate, its spread, and the place of its batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.knobs.discovery import BATCH
from advisor.knobs.registry import loader_arguments
from advisor.model import BatchPlace, Candidate
from advisor.stats import noise_band
from advisor.tuner.prices import CEILINGS_S
from advisor.tuner.state import SearchStep, change_of, key_of, run_trial

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from advisor.model import Effects, Knob
    from advisor.tuner.state import Result, TunerState

FEW_PROCESSES = 8
"""A budget that buys fewer has no second baseline: the confirmation repeats the original."""
WAIT_FOR_ITEM = 0.1
"""Part of the budget, from its first step on, for one item of a sampler."""
USUAL = 3
MOST = 4
"""The fourth only where the best of three stands alone."""
OWN_KINDS = ("batch_size", *loader_arguments())
STEP_SHARES = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original sampling steps that are tried."""
BATCH_FACTORS = (2, 0.5)
"""Factors by which a batch setting is moved to find the batch."""


def measure_baseline(
    state: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, TrialResult | None]]:
    """Run the original until its processes agree.

    Returns its failure where it fails.
    """
    forwards: float | None = None
    place: BatchPlace | None = None
    for number in range(MOST):
        if number and state.originals and not needs_another(state):
            break
        request = baseline_request(state, number, forwards, place)
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
        state = replace(state, prices=state.prices.of_baselines(state.originals))
        if not number and not is_too_small(state):
            state, place = yield from find_batch(state)
            if place is not None:  # that run was read without it
                state = replace(state, originals=())
    return replace(state, noise=noise_of(state)) if state.originals else state, None


def baseline_request(
    state: TunerState, number: int, forwards: float | None, place: BatchPlace | None
) -> TrialRequest:
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
        batch_at=place or state.batch_at,
    )
    few = with_few_steps(state).changes
    patience_s = WAIT_FOR_ITEM * state.context.budget_s if few else None
    return TrialRequest(
        variant=Variant(),
        purpose="baseline",
        plan=plan,
        fresh=True,
        series=f"{number}",
        limit_s=None if forwards or number else patience_s,
    )


def forwards_by_few_steps(
    state: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, float | None]]:
    """Scale the forwards of an item from a short one."""
    few = with_few_steps(state)
    steps = next((c for c in few.changes if c.kind == "timesteps"), None)
    if steps is None or not isinstance(steps.old, int) or not isinstance(steps.new, int):
        return state, None
    request = TrialRequest(
        variant=Variant(candidate=few),
        purpose="effects",
        plan=state.plan(few, whole_batches=1),
        expected_s=1.0,
    )
    result = yield SearchStep(request=request, state=state)
    state = state.with_result(result)
    run = result.run if isinstance(result, TrialResult) else None
    seen = run.effects.forwards_per_unit if run is not None else None
    return state, None if seen is None else seen * steps.old / steps.new


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
    if len(state.originals) == 1:
        if is_too_small(state):
            return False
        few = state.remaining_s <= FEW_PROCESSES * state.price_s
        return not few or state.remaining_s < state.fewest_s
    if len(state.originals) == USUAL and len(state.steady_originals) > 1:
        return False
    rates = [state.context.objective.score(run) for run in state.originals]
    apart = max(rates) / min(rates) - 1
    expected = max(state.context.earlier.host_noise or 0.0, state.context.smallest_gain)
    return apart > expected and state.remaining_s > FEW_PROCESSES * state.price_s


def is_too_small(state: TunerState) -> bool:
    """True if the budget holds no candidate and its confirmation."""
    if len(state.originals) > 1:
        return state.fewest_s > state.remaining_s
    # The first process may have found cold caches, which only its start-up shows.
    run = state.original
    stepping = 1.0 - min(1.0, (run.startup_s or 0.0) / max(run.wall_s, 1e-9))
    return stepping * state.fewest_s > state.clock_s


def noise_of(state: TunerState) -> float:
    """Relative spread between equal processes, here or earlier."""
    here = noise_band([run.windows or (run.units_per_s,) for run in state.non_outlier_baselines])
    return max(here or 0.0, state.context.earlier.host_noise or 0.0)


def worth_trying(state: TunerState) -> bool:
    """True if a knob or a loader may be tuned."""
    return bool(state.tunable(*OWN_KINDS, "grad_checkpoint", "precision", "timesteps")) or (
        state.original.effects.workers is not None
    )


# --- place of the batch -------------------------------------------------------------------------


def find_batch(
    state: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, BatchPlace | None]]:
    """Find the input dimension that follows the batch setting.

    None where a loader tells the batch, or where no setting could be that dimension.
    """
    for knob in batch_suspects(state):
        moved = next(_moved(state, knob), None)
        if moved is None:
            continue
        request = TrialRequest(
            variant=Variant(candidate=moved),
            purpose="effects",
            plan=state.short_plan(),
            expected_s=state.price_s,
        )
        state, result = yield from run_trial(state, request)
        run = result.run if result is not None else None
        change = change_of(moved, key_of(knob))
        if run is None or change is None:
            return state, None
        factor = float(str(change.new)) / float(str(change.old))
        return state, scaled_dimension(state.original.effects, run.effects, factor)
    return state, None


def batch_suspects(state: TunerState) -> list[Knob]:
    """Batch settings that do not explain the batch seen."""
    seen = state.original.effects
    counts = [k for k in state.tunable("batch_size") if _is_count(k)]
    loaded = seen.workers is not None or seen.batch_asked is not None
    explained = bool(BATCH.seen(seen)) and BATCH.known_from(counts, seen)
    if loaded or explained or seen.model_site is None:
        return []
    dims = {float(size) for shape in seen.input_dims for size in shape}
    return [
        knob
        for knob in counts
        if any(relation.shown(_value(knob), seen) in dims for relation in BATCH.relations)
    ]


def scaled_dimension(before: Effects, after: Effects, factor: float) -> BatchPlace | None:
    """The first dimension that changed as the setting did."""
    assert before.model_site is not None
    pairs = enumerate(zip(before.input_dims, after.input_dims, strict=False))
    for number, (old_shape, new_shape) in pairs:
        for axis, (old, new) in enumerate(zip(old_shape, new_shape, strict=False)):
            if len(old_shape) == len(new_shape) and old != new == old * factor:
                return BatchPlace(site=before.model_site, input=number, axis=axis)
    return None


def _moved(state: TunerState, knob: Knob) -> Iterator[Candidate]:
    for factor in BATCH_FACTORS:
        value = _value(knob) * factor
        if value >= 1 and value == int(value):
            moved = state.with_value(knob, int(value))
            if not isinstance(moved, knobs.InvalidChange):
                yield moved


def _is_count(knob: Knob) -> bool:
    return isinstance(knob.value, int) and not isinstance(knob.value, bool) and knob.value >= 1


def _value(knob: Knob) -> int:
    assert isinstance(knob.value, int)
    return knob.value
