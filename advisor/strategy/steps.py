"""Sampling steps: fewer, while every declared quality measure stays inside its tolerance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.experiments.attempts import Arm
from advisor.model import Candidate
from advisor.quality import judge
from advisor.strategy import effects, results
from advisor.strategy.guard import (
    FIRST_QUALITY,
    judged,
    quality_ask,
    reference_of,
    seen_as_data,
    values_of,
    with_values,
)
from advisor.strategy.standing import (
    Answer,
    Stage,
    Standing,
    Turn,
    ask_for,
    change_of,
    key_of,
    tried,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.model import Knob
    from advisor.quality import QualityJudgement
    from advisor.strategy.facts import Data

LADDER = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original steps, tried in turn until one is out of tolerance."""


def tune_steps(now: Standing) -> Stage:
    """Every steps knob, where the user declared a measure with a tolerance."""
    for knob in now.tunable("timesteps"):
        key = key_of(knob)
        if not isinstance(knob.value, int) or isinstance(knob.value, bool) or knob.value < 2:
            now = now.settle(key, "listed", "no-plain-count", value=str(knob.value))
        elif not now.facts.workload.quality:
            now = now.settle(key, "listed", "no-quality-measure")
        else:
            now, anchor, quality_s = yield from anchored(now, knob)
            if anchor is not None:
                now = yield from descend(now, knob, knob.value, anchor, quality_s)
    return now


def anchored(
    now: Standing, knob: Knob
) -> Generator[Turn, Answer, tuple[Standing, Candidate | None, float]]:
    """What qualities are held against, and the seconds that one quality run of the best takes.

    The original; where it is too slow for the budget, the best free candidate stands in: free
    knobs cannot change results. None where the measures could not be read.
    """
    key = key_of(knob)
    ask = quality_ask(Arm(candidate=now.best), FIRST_QUALITY * now.price_s)
    now, attempt = yield from tried(now, ask)
    if attempt is None:
        return now.settle(key, "skipped", "budget"), None, 0.0
    run = attempt.run
    values = values_of(now, run)
    if run is None or not values:
        return now.settle(key, "refused", "quality-not-read"), None, 0.0
    log = now.quality
    if not now.best.changes:
        log = replace(log, before=tuple(values.items()))
        return replace(now, quality=log), Candidate(), run.wall_s
    original_s = run.wall_s * now.gain(now.front, now.original)
    if original_s > now.left_s - now.reserve_s:
        log = replace(log, before=tuple(values.items()))
        return replace(now, quality=log), now.best, run.wall_s
    now, attempt = yield from tried(now, quality_ask(Arm(), original_s))
    original = values_of(now, attempt.run if attempt else None)
    now = replace(now, quality=replace(log, before=tuple((original or values).items())))
    if not original:
        return now, now.best, run.wall_s
    assert attempt is not None
    assert attempt.run is not None
    if lost := results.lost((attempt.run,), run):
        return distrusted(now, "loses-results", lost), Candidate(), run.wall_s
    judgements = judge(now.facts.workload.quality, reference_of(now), values)
    return (now if all(j.within for j in judgements) else distrusted(now)), Candidate(), run.wall_s


def distrusted(now: Standing, why: str = "moved-the-quality", seen: Data = ()) -> Standing:
    """Without the best: it moved the quality although none of its knobs should change results."""
    for change in now.best.changes:
        key = (change.document, change.path)
        now = now.settle(key, "kept", why, **{**dict(seen), "value": change.new})
    return replace(now, best=Candidate(), best_run=None, proofs=())


def descend(now: Standing, knob: Knob, original: int, anchor: Candidate, quality_s: float) -> Stage:
    """Down the ladder on top of the best; the last rung inside tolerance stays."""
    key = key_of(knob)
    chosen: tuple[Candidate, list[QualityJudgement]] | None = None
    stop: Data = (("stop", "ladder-ended"),)
    for share in LADDER:
        value = tidy_steps(original * share)
        if value < 1 or value >= original:
            continue
        candidate = now.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            reason = candidate.reason.partition(": ")[2] or candidate.reason
            stop = (("stop", "refused"), ("steps", value), ("why", reason))
            break
        expected_s = quality_s * value / original
        now, found = yield from judged(now, Arm(candidate=candidate), expected_s, against=anchor)
        if not found:
            stop = (("stop", "not-judged"), ("steps", value))
            break
        if not all(judgement.within for judgement in found):
            stop = (("stop", "out-of-tolerance"), ("steps", value), *seen_as_data(found))
            break
        chosen = (candidate, found)
    if chosen is None:
        return now.settle(key, "refused", "no-fewer-steps", **dict(stop))
    return (yield from time_it(now, knob, *chosen, stop))


def time_it(
    now: Standing, knob: Knob, candidate: Candidate, found: list[QualityJudgement], stop: Data
) -> Stage:
    """Time the chosen rung like any candidate, one whole item of it, and settle the knob."""
    key, start = key_of(knob), now.front
    ask = ask_for(now, candidate, knob=knob, whole_batches=1)
    now, attempt = yield from tried(now, ask)
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
        f"{c.path.rsplit('.', 1)[-1]} {c.old} to {c.new}"
        for c in candidate.changes
        if c.kind == "schedule"
    )
    now = with_values(now.adopt(candidate, run), found)
    return now.settle(key, "found", "steps", moved=moved or None, **dict(stop))


def tidy_steps(steps: float) -> int:
    """A count people would write: two significant digits."""
    whole = max(1, round(steps))
    digits = len(str(whole))
    return round(whole, 2 - digits) if digits > 2 else whole
