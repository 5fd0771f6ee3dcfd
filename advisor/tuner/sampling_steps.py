"""Fewer sampling steps, inside the declared tolerance."""

from __future__ import annotations

from advisor import knobs
from advisor.executor.requests import Variant
from advisor.model import Candidate, Knob, leaf_of
from advisor.tuner.baseline import STEP_SHARES, tidy_steps
from advisor.tuner.quality_gate import Verdict, confirm_quality, measure_reference, screen
from advisor.tuner.search import is_count, plain_reason
from advisor.tuner.state import OUT_OF_TIME, Stage, TunerState, key_of
from advisor.tuner.value_trials import try_values

MOST_CONFIRMED = 2
"""Step counts that may be confirmed: each has its own chance to pass by luck."""


def tune_steps(state: TunerState) -> Stage:
    """Tune every steps knob with a declared tolerance."""
    for knob in state.tunable("timesteps"):
        reason = ""
        if not is_count(knob.value, least=2):
            reason = f"{str(knob.value)!r} is no plain count; it is left as it is."
        elif not state.context.workload.quality:
            reason = (
                "Fewer steps change the result, and no quality measure is declared in "
                "gpu-advisor.toml; a measure with a tolerance is the consent to trade."
            )
        if reason:
            state = state.set_verdict(key_of(knob), "listed", reason)
        else:
            state = yield from shorten(state, knob)
    return state


def shorten(state: TunerState, knob: Knob) -> Stage:
    """Find the fewest confirmed steps inside the tolerance, by bisection."""
    key = key_of(knob)
    before = state.skipped
    state, reference = yield from measure_reference(state)
    if reference is None and state.skipped != before:
        return state.set_verdict(key, "skipped", OUT_OF_TIME)
    if reference is None:
        reason = "The original's quality could not be measured: its output shows no figure."
        return state.set_verdict(key, "refused", reason)
    counts, stop = step_counts(state, knob)
    screened: dict[int, Verdict] = {}
    low, high, found = 0, len(counts) - 1, -1
    while low <= high:
        at = (low + high + 1) // 2
        state, screened[at] = yield from screen(state, reference, *named(counts[at]))
        if screened[at].inside:
            found, low = at, at + 1
        else:
            stop, high = screened[at].why, at - 1
    for at in range(found, max(-1, found - MOST_CONFIRMED), -1):
        variant, name = named(counts[at])
        if at not in screened:
            state, screened[at] = yield from screen(state, reference, variant, name)
        state, verdict = yield from confirm_quality(state, reference, variant, screened[at], name)
        if verdict.inside:
            return (yield from time_steps(state, knob, *counts[at], stop))
        stop = verdict.why
        if not verdict.refuted:
            break
    return state.set_verdict(key, "refused", f"Kept. {stop}")


def named(count: tuple[int, Candidate]) -> tuple[Variant, str]:
    """Variant of a step count, and its name in sentences."""
    return Variant(candidate=count[1]), f"{count[0]} steps"


def step_counts(state: TunerState, knob: Knob) -> tuple[list[tuple[int, Candidate]], str]:
    """Step counts down to a refused one, most first, and the reason of the end."""
    original = int(str(knob.value))
    found: dict[int, Candidate] = {}
    for share in STEP_SHARES:
        value = tidy_steps(original * share)
        candidate = state.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            return list(found.items()), f"The search stopped because {plain_reason(candidate)}."
        if value < original:
            found[value] = candidate
    return list(found.items()), "No smaller step count was tried."


def time_steps(state: TunerState, knob: Knob, steps: int, candidate: Candidate, stop: str) -> Stage:
    """Time one whole item with the chosen steps."""
    state = yield from try_values(state, knob, [steps], whole_batches=1)
    verdict = state.verdict_on(knob)
    if verdict is None or verdict.outcome != "found":
        return state
    along = ", ".join(
        f"{leaf_of(c.path)} {c.old} to {c.new}" for c in candidate.changes if c.kind == "schedule"
    )
    schedule = f"; the linked schedule moved: {along}" if along else ""
    held = "The bounds of every quality measure are inside its tolerance, on seeds that did not "
    return state.set_verdict(key_of(knob), "found", f"{held}choose it{schedule}. {stop}")
