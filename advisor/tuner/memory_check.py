"""Memory of a proven batch in one whole pass over the data."""

from __future__ import annotations

from dataclasses import replace

from advisor.executor.requests import Variant
from advisor.model import Failure, Run
from advisor.tuner.confirm import back_to, proven_candidate, proven_run, refuse_batch
from advisor.tuner.state import Stage, TunerState, change_of, key_of, make_request, run_trial

WITH_VALIDATION = 1.5
"""Time of a pass with its validation, over that of its training steps."""
INCONCLUSIVE = {"timeout", "interrupted"}
"""Failures that say nothing about the batch."""


def check_memory(state: TunerState) -> Stage:
    """Run a proven batch through one pass over the data, on a card.

    The measured steps are few: validation, or the longest batch, may need more memory. A batch
    that fails there is not written.
    """
    winner = proven_candidate(state)
    run = proven_run(state, winner)
    grown = [knob for knob in state.of_kind("batch_size") if change_of(winner, key_of(knob))]
    if not grown or not run.on_gpu:
        return state
    note = memory_caveat(state, run)
    if run.effects.data_items:
        pass_s = WITH_VALIDATION * run.effects.data_items / run.units_per_s
        variant = Variant(candidate=winner)
        request = replace(
            make_request(state, variant, "effects", measure_s=pass_s, longest_s=pass_s),
            expected_s=state.price_s + pass_s,
            title=f"one pass over the data with {winner.label}",
        )
        kept_s = state.reserve_s if state.context.consents else 0.0
        state, found = yield from run_trial(state, request, kept_s=kept_s, matters=False)
        if found is not None and (why := failure_of(state, found.result)):
            state = refuse_batch(state, winner, f"fails within one pass over the data. {why}")
            return back_to(state, proven_candidate(state))
        if found is not None and found.run is not None:
            note = seen_memory(state, found.run)
    for knob in grown:
        verdict = state.verdict_on(knob)
        if verdict is not None:
            state = state.set_verdict(key_of(knob), verdict.outcome, verdict.reason + note)
    return state


def failure_of(state: TunerState, result: Run | Failure) -> str:
    """Evidence that a whole pass fails; else empty."""
    if isinstance(result, Failure):
        return "" if result.kind in INCONCLUSIVE else result.evidence
    limit_gib = state.context.memory_limit_gib
    if (result.peak_mem_gib or 0.0) > limit_gib:
        return f"It peaked at {result.peak_mem_gib:.2f} GiB, of {limit_gib:.2f} GiB usable."
    return ""


def seen_memory(state: TunerState, run: Run) -> str:
    """Sentence on the memory of a whole pass."""
    validated = any(phase.name == "validation" for phase in run.phases)
    return (
        f" One pass over the data, {'with' if validated else 'in which no'} validation"
        f"{'' if validated else ' was seen'}, held {run.held_gib or 0.0:.2f} of "
        f"{state.context.memory_limit_gib:.2f} GiB."
    )


def memory_caveat(state: TunerState, run: Run) -> str:
    """Sentence on what the measured steps of a batch do not show of its memory; else empty."""
    if not run.on_gpu or run.held_gib is None:
        return ""
    return (
        f" Its measured steps held {run.held_gib:.2f} of {state.context.memory_limit_gib:.2f} GiB; "
        "a validation pass or a longer batch may need more."
    )
