"""The points of the lower tiers along the batch, proven over the original like what is written.

Each is what `--tier` would write: a smaller batch with part of the gain, for less memory. Nothing
of it is written here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import ABTest, Variant
from advisor.model import TIERS
from advisor.tuner import several
from advisor.tuner.asking import SearchStep
from advisor.tuner.proof import planned_rounds, proven_candidate, side
from advisor.tuner.standing import FEWEST_ROUNDS, GOOD_ROUNDS, MARGIN, change_of, key_of

if TYPE_CHECKING:
    from advisor.model import Candidate
    from advisor.tuner.asking import Stage
    from advisor.tuner.facts import StepUp
    from advisor.tuner.standing import TunerState

RISES = 0.02
"""A memory that grows by less is no reason for a smaller batch."""


def prove_lower_tiers(now: TunerState) -> Stage:
    """Every point that is not what is written; where one does not fit, the report says so.

    None takes more than the fewest rounds from what comes after it, which needs its fewest too.
    """
    points = lower_points(now)
    for number, (step, candidate) in enumerate(points, 1):
        title = f"the tier {step.tier}: {candidate.label} against original"
        round_s = MARGIN * now.prices.pair_s(step.run)
        later_s = sum(
            FEWEST_ROUNDS * MARGIN * now.prices.pair_s(later.run) for later, _ in points[number:]
        )
        spare_s = max(0.0, now.remaining_s - FEWEST_ROUNDS * round_s)
        kept_s = min(spare_s, later_s + several.fewest_s(now))
        gain = now.gain(step.run, now.original)
        rounds = min(GOOD_ROUNDS, planned_rounds(now, gain, round_s, kept_s=kept_s))
        if rounds < FEWEST_ROUNDS:
            now = now.skip(title, FEWEST_ROUNDS * round_s, matters=False)
            continue
        ab_test = ABTest(
            purpose="tier",
            title=title,
            before=side(now, Variant(), "tier"),
            after=side(now, Variant(candidate=candidate), "tier"),
            rounds=rounds,
            sigma=now.sigma,
            tier=step.tier,
        )
        answer = yield SearchStep(request=ab_test, standing=now)
        now = now.heard(answer)
    return now


def lower_points(now: TunerState) -> list[tuple[StepUp, Candidate]]:
    """What the tiers below the one asked for take, on top of what else was proven free; each batch
    once."""
    free = proven_candidate(now).only("free", "training")
    found: list[tuple[StepUp, Candidate]] = []
    asked = list(TIERS).index(now.facts.workload.tier)
    if not now.steps_up:
        return found
    top = now.steps_up[asked]
    change = change_of(free, top.knob)
    memory = [run.held_gib or 0.0 for run in (top.run, now.original)]
    if change is None or memory[0] <= (1 + RISES) * memory[1]:
        return found
    knob = next(knob for knob in now.all_knobs if key_of(knob) == top.knob)
    seen = {change.new, knob.value}
    for step in now.steps_up[:asked]:
        moved = replace(now, best=free).with_value(knob, step.batch)
        if step.batch in seen or isinstance(moved, knobs.InvalidChange):
            continue
        seen.add(step.batch)
        found.append((step, moved))
    return found
