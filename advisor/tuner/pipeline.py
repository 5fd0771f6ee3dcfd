"""Stages of a search: free settings first.

What changes no result is tuned and proven before anything that might, so that a call which ends
early has written what is safest. Code changes come last: they are only suggested, on top of what
is proven.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial

from advisor.tuner import policy, reserves
from advisor.tuner.baseline import (
    discover_knobs,
    is_too_small,
    measure_baseline,
    worth_trying,
)
from advisor.tuner.code_suggestions import (
    compare_stacks,
    is_confirmed,
    is_sure,
    suggest_changes,
    suggest_settings,
    to_compare,
)
from advisor.tuner.confirm import check_memory, confirm, proven_candidate
from advisor.tuner.context import TuningContext
from advisor.tuner.outcomes import NearMiss
from advisor.tuner.search import tune_all_workers, tune_batch_and_workers
from advisor.tuner.stages import SearchStep, Stage, Stop
from advisor.tuner.state import Result, TunerState
from advisor.tuner.value_trials import (
    try_values,
    tune_flags,
    tune_loader,
    tune_memory_savers,
    tune_precision,
    tune_steps,
)


def next_request(context: TuningContext, results: Sequence[Result]) -> SearchStep | Stop:
    """Next step of a search whose trials gave `results`, or its end; equal for equal results."""
    steps = pipeline(context)
    try:
        step = next(steps)
        for result in results:
            step = steps.send(result)
    except StopIteration as end:
        stop: Stop = end.value
        return stop
    return step


def pipeline(context: TuningContext) -> Generator[SearchStep, Result, Stop]:
    """Send a search's requests; return its end."""
    start = TunerState(context=context, remaining_s=context.budget_s)
    state, failed = yield from measure_baseline(start)
    if failed is not None:
        return Stop(reason="baseline-failed", state=state, failed=failed)
    if not state.originals:
        needed_s = policy.BUDGETS_FOR_AN_ITEM * context.budget_s
        return Stop(reason="budget-too-small", state=state, needed_s=needed_s)
    if context.objective.unmeasured(state.original):
        return Stop(reason="not-measured", state=state)
    if is_too_small(state) and worth_trying(state):
        needed_s = reserves.budget_for(state, reserves.fewest_s(state) - state.remaining_s)
        return Stop(reason="budget-too-small", state=state, needed_s=needed_s)
    for stage in (
        discover_knobs,
        tune_memory_savers,  # one trial, of a large gain where recomputation was seen
        tune_batch_and_workers,
        tune_loader,
        confirm,
        check_memory,
        tune_gated_knobs,
        suggest_changes,
        look_again,
    ):
        state = yield from stage(state)
    return Stop(reason="done", state=state)


def tune_gated_knobs(state: TunerState) -> Stage:
    """Tune knobs behind the declared tolerance, and confirm each on top of what is proven.

    Sampling steps come first: they gain a sampler many times as much as a precision can, and what
    is tried and judged after them costs a fraction. A program that computes faster may wait for
    its data now, so the loader is tuned once more.
    """
    free = state.best
    if state.context.allows("quality"):
        state = yield from tune_steps(state)
        state = yield from confirm(state)
    if state.context.allows("numeric"):
        state = yield from tune_precision(state)
        state = yield from tune_flags(state)
    if state.waits and state.best.key != free.key:
        state = yield from tune_all_workers(state)
        state = yield from tune_loader(state)
    return (yield from confirm(state))


def look_again(state: TunerState) -> Stage:
    """Rounds for what single runs left open, settings that can be written before all others.

    Where nothing is proven, a gain that single runs' noise may hide is compared, too. While
    suggestions wait for rounds of their own, it takes no more than its share.
    """
    written = [
        near_miss for near_miss in state.near_misses if not state.in_code(near_miss.knob)
    ]
    state = yield from compare_hidden(state, written)
    state = yield from compare_stacks(state)
    if not is_proven(state):
        coded = [
            near_miss for near_miss in state.near_misses if state.in_code(near_miss.knob)
        ]
        state = yield from compare_hidden(state, coded)
        state = replace(state, second_look=True)
        state = yield from compare_stacks(state)
        state = replace(state, second_look=False)
    kept = tuple(
        suggestion
        for suggestion in state.suggestions
        if suggestion.outcome or is_sure(state, suggestion.run)
    )
    return replace(state, suggestions=kept)


def compare_hidden(state: TunerState, misses: Sequence[NearMiss]) -> Stage:
    """Compare values that ran faster within the noise, until something is proven."""
    for number, near in enumerate(sorted(misses, key=lambda miss: -miss.gain)):
        if is_proven(state):
            break
        waiting = len(to_compare(state))
        room_s = state.remaining_s / (len(misses) - number + waiting) if waiting else None
        state = replace(state, second_look=True)
        again = partial(try_values, knob=near.knob, values=[near.value])
        if state.in_code(near.knob):
            state = yield from suggest_settings(state, [again])
        else:
            state = yield from again(state)
            state = yield from confirm(state, room_s)
            state = yield from check_memory(state)
        state = replace(state, second_look=False)
    return state


def is_proven(state: TunerState) -> bool:
    """True if the call has something to show: a proven candidate or a proven suggestion."""
    by_hand = any(is_confirmed(state, suggestion) for suggestion in state.suggestions)
    return by_hand or bool(proven_candidate(state).changes)
