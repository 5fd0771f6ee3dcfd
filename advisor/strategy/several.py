"""Two processes side by side, where the program has a setting for how many share the items.

Nothing of it is written: it tells what a further card can be expected to add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.experiments.attempts import Arm, Contest
from advisor.strategy.proof import side
from advisor.strategy.standing import FEWEST_ROUNDS, GOOD_ROUNDS, MARGIN, Turn, tried

if TYPE_CHECKING:
    from advisor.model import Knob
    from advisor.strategy.standing import Stage, Standing

TWO = 2


def side_by_side(now: Standing) -> Stage:
    """What was proven, with two processes against one, in rounds; only of inference."""
    counts = [knob for knob in now.all_knobs if knob.kind == "num_devices" and _is_one(knob)]
    if len(counts) != 1 or now.trains or now.facts.cards == 1 or now.front.ranks != 1:
        return now
    candidate = now.with_value(counts[0], TWO)
    if isinstance(candidate, knobs.Refusal):
        return now
    two = side(now, Arm(candidate=candidate), "scaling")
    now, attempt = yield from tried(now, two, kept_s=0.0, matters=False)
    if attempt is None or attempt.run is None or attempt.run.ranks != TWO:
        return now
    round_s = MARGIN * (now.price_s + attempt.run.wall_s)
    rounds = min(GOOD_ROUNDS, int(now.left_s / max(round_s, 1e-9)))
    title = "two processes side by side against one"
    if rounds < FEWEST_ROUNDS:
        return now.skip(title, FEWEST_ROUNDS * round_s, matters=False)
    contest = Contest(
        purpose="scaling",
        title=title,
        before=side(now, Arm(candidate=now.best), "scaling"),
        after=two,
        rounds=rounds,
        sigma=now.sigma,
    )
    answer = yield Turn(ask=contest, standing=now)
    return now.heard(answer)


def _is_one(knob: Knob) -> bool:
    return knob.editable and type(knob.value) is int and knob.value == 1
