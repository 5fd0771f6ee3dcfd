"""Two processes side by side, where the program has a setting for how many share the items.

Nothing of it is written: it tells what a further card can be expected to add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import ABTest, Variant
from advisor.objective import THROUGHPUT
from advisor.tuner.asking import SearchStep, tried
from advisor.tuner.proof import side
from advisor.tuner.standing import FEWEST_ROUNDS, GOOD_ROUNDS, MARGIN

if TYPE_CHECKING:
    from advisor.model import Candidate, Knob
    from advisor.tuner.asking import Stage
    from advisor.tuner.standing import TunerState

TWO = 2


def side_by_side(now: TunerState) -> Stage:
    """What was proven, with two processes against one, in rounds; only of inference."""
    candidate = two_of(now)
    if candidate is None:
        return now
    title = "two processes side by side against one"
    if fewest_s(now) > now.remaining_s:
        return now.skip(title, fewest_s(now), matters=False)
    two = side(now, Variant(candidate=candidate), "scaling")
    now, attempt = yield from tried(now, two, kept_s=0.0, matters=False)
    if attempt is None or attempt.run is None or attempt.run.ranks != TWO:
        return now
    round_s = MARGIN * (now.price_s + attempt.run.wall_s)
    rounds = min(GOOD_ROUNDS, int(now.remaining_s / max(round_s, 1e-9)))
    if rounds < FEWEST_ROUNDS:
        return now.skip(title, FEWEST_ROUNDS * round_s, matters=False)
    ab_test = ABTest(
        purpose="scaling",
        title=title,
        before=side(now, Variant(candidate=now.best), "scaling"),
        after=two,
        rounds=rounds,
        sigma=now.sigma,
    )
    answer = yield SearchStep(request=ab_test, standing=now)
    return now.heard(answer)


def fewest_s(now: TunerState) -> float:
    """What it takes at least: one process that shows whether there are two, and its rounds."""
    if two_of(now) is None:
        return 0.0
    again_s = now.prices.again_s(now.best_run)
    return again_s + MARGIN * FEWEST_ROUNDS * (now.price_s + again_s)


def two_of(now: TunerState) -> Candidate | None:
    """What was proven, in two processes; None where there is nothing to be learnt of them."""
    counts = [knob for knob in now.all_knobs if knob.kind == "num_devices" and _is_one(knob)]
    if len(counts) != 1 or now.trains or now.facts.cards == 1 or now.front.ranks != 1:
        return None
    if now.facts.objective.name != THROUGHPUT.name:  # of anything else two have what one has
        return None
    candidate = now.with_value(counts[0], TWO)
    return None if isinstance(candidate, knobs.InvalidChange) else candidate


def _is_one(knob: Knob) -> bool:
    return knob.editable and type(knob.value) is int and knob.value == 1
