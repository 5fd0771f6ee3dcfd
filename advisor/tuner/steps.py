"""Sampling steps: fewer, while every declared quality measure stays inside its tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import Variant
from advisor.model import leaf_of
from advisor.tuner import effects
from advisor.tuner.asking import SearchStep, Stage, ask_for, tried
from advisor.tuner.guard import QualityCandidate, anchored, beyond, chosen, confirmed, unjudged
from advisor.tuner.standing import Result, TunerState, change_of, key_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.model import Candidate, Knob
    from advisor.tuner.facts import Data
    from advisor.tuner.guard import Anchor

LADDER = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original steps that are tried."""
MOST_CONFIRMED = 2
"""Rungs that may be confirmed: each has its own chance to pass by luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Rungs that the config can be moved to, and what the choosing runs said of some of them."""

    steps: tuple[int, ...]
    """Most first."""
    candidates: tuple[Candidate, ...]
    rungs: tuple[tuple[int, QualityCandidate], ...] = ()
    """By position."""
    stop: Data = (("stop", "ladder-ended"),)


def tune_steps(now: TunerState) -> Stage:
    """Every steps knob, where the user declared a measure with a tolerance."""
    for knob in now.tunable("timesteps"):
        key = key_of(knob)
        if not isinstance(knob.value, int) or isinstance(knob.value, bool) or knob.value < 2:
            now = now.settle(key, "listed", "no-plain-count", value=str(knob.value))
        elif not now.facts.workload.quality:
            now = now.settle(key, "listed", "no-quality-measure")
        else:
            now = yield from shorten(now, knob, knob.value)
    return now


def shorten(now: TunerState, knob: Knob, original: int) -> Stage:
    """The fewest steps that hold in the choosing runs, confirmed by others; else more of them."""
    key = key_of(knob)
    now, anchor, why = yield from anchored(now)
    if anchor is None:
        return now.settle(key, "skipped" if why == "budget" else "refused", why)
    ladder = ladder_of(now, knob, original)
    now, ladder, position = yield from choose(now, anchor, ladder)
    stop, looked_at = ladder.stop, 0
    while position is not None and position >= 0 and looked_at < MOST_CONFIRMED:
        now, ladder, rung = yield from judged(now, anchor, ladder, position)
        if rung is None or not rung.inside:
            break
        now, inside, seen = yield from confirmed(now, anchor, rung)
        if inside:
            return (yield from time_it(now, knob, ladder.candidates[position], stop))
        stop = (("steps", ladder.steps[position]), *seen)
        looked_at += dict(seen)["stop"] == "not-confirmed"
        if dict(seen)["stop"] not in {"not-confirmed", "too-noisy"}:
            break
        position -= 1
    return now.settle(key, "refused", "no-fewer-steps", **dict(stop))


def ladder_of(now: TunerState, knob: Knob, original: int) -> Ladder:
    """The rungs, down to one that a linked setting refuses."""
    steps: list[int] = []
    candidates: list[Candidate] = []
    for share in LADDER:
        value = tidy_steps(original * share)
        if value < 1 or value >= original or value in steps:
            continue
        candidate = now.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            why = candidate.reason.partition(": ")[2] or candidate.reason
            stop: Data = (("stop", "refused"), ("steps", value), ("why", why))
            return Ladder(steps=tuple(steps), candidates=tuple(candidates), stop=stop)
        steps.append(value)
        candidates.append(candidate)
    return Ladder(steps=tuple(steps), candidates=tuple(candidates))


def choose(
    now: TunerState, anchor: Anchor, ladder: Ladder
) -> Generator[SearchStep, Result, tuple[TunerState, Ladder, int | None]]:
    """The lowest rung inside, found by halves: the runs near the top cost most."""
    low, high = 0, len(ladder.steps) - 1
    found: int | None = None
    while low <= high:
        middle = (low + high + 1) // 2
        now, ladder, rung = yield from judged(now, anchor, ladder, middle)
        if rung is not None and rung.inside:
            found, low = middle, middle + 1
            continue
        high = middle - 1
        arm = Variant(candidate=ladder.candidates[middle])
        why = unjudged(now, arm) if rung is None else beyond(rung.judgements)
        ladder = replace(ladder, stop=(("steps", ladder.steps[middle]), *why))
    return now, ladder, found


def judged(
    now: TunerState, anchor: Anchor, ladder: Ladder, position: int
) -> Generator[SearchStep, Result, tuple[TunerState, Ladder, QualityCandidate | None]]:
    """What the choosing runs say of a rung; asked once."""
    known = dict(ladder.rungs)
    if position in known:
        return now, ladder, known[position]
    share = ladder.steps[position] / max(ladder.steps[0] / LADDER[0], 1.0)
    arm = Variant(candidate=ladder.candidates[position])
    now, rung = yield from chosen(now, anchor, arm, anchor.run_s * share)
    if rung is not None:
        ladder = replace(ladder, rungs=(*ladder.rungs, (position, rung)))
    return now, ladder, rung


def time_it(now: TunerState, knob: Knob, candidate: Candidate, stop: Data) -> Stage:
    """Time the chosen rung like any candidate, one whole item of it, and settle the knob."""
    key, start = key_of(knob), now.front
    request = ask_for(now, candidate, knob=knob, whole_batches=1)
    now, attempt = yield from tried(now, request)
    run = attempt.run if attempt else None
    if attempt is None:
        return now.settle(key, "skipped", "budget")
    change = change_of(candidate, key)
    if run is None or change is None:
        return now.settle(key, "refused", "failed-when-timed")
    if effects.verdict(change, start, run) == "ignored":
        override = effects.overriding(knob.path, change.new, run)
        return now.settle(key, "ignored", "steps-ignored", override=override)
    if not now.faster(run, start):
        return now.settle(key, "kept", "steps-no-faster", band=now.band)
    moved = ", ".join(
        f"{leaf_of(c.path)} {c.old} to {c.new}" for c in candidate.changes if c.kind == "schedule"
    )
    now, proof = now.adopt(candidate, run), now.facts.workload.quality_proof
    return now.settle(key, "found", "steps", moved=moved or None, proof=proof, **dict(stop))


def tidy_steps(steps: float) -> int:
    """A count people would write: two significant digits."""
    whole = max(1, round(steps))
    digits = len(str(whole))
    return round(whole, 2 - digits) if digits > 2 else whole
