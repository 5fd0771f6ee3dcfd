"""The proof: how many rounds a gain needs, and what was proven."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.experiments.attempts import Arm, Ask, Contest
from advisor.experiments.comparison import Comparison
from advisor.model import Candidate
from advisor.strategy.standing import (
    FEWEST_ROUNDS,
    MARGIN,
    MOST_RESERVED,
    Stage,
    Standing,
    Turn,
)

if TYPE_CHECKING:
    from advisor.model import Purpose, Run

SMALL_GAIN = 1.3
ROUNDS_SMALL_GAIN = 10
"""Below that ratio more rounds are needed in any case."""
MOST_ROUNDS = 20
"""More narrow the bounds too slowly to be worth their time."""


def prove(now: Standing, winner: Candidate) -> Stage:
    """`winner` against the most that was proven so far; without a proof it is given up.

    A proof that stayed open is made once more, with rounds of its own, where the budget allows.
    """
    held = proven_candidate(now)
    if winner.key == held.key or now.best_run is None:
        return back_to(now, held)
    title = f"{winner.label} against {held.label}"
    for again in (False, True):
        expected = now.gain(now.front, front_of(now, held))
        rounds = planned_rounds(now, expected, now.price_s, again=again)
        if rounds < FEWEST_ROUNDS:
            what, fewest = ("a second", MOST_RESERVED) if again else ("the", FEWEST_ROUNDS)
            now = now.skip(f"{what} proof of {winner.label}", now.rounds_s(fewest))
            break
        contest = Contest(
            purpose="confirm",
            title=title + ", again" * again,
            before=side(now, Arm(candidate=held), "confirm"),
            after=side(now, Arm(candidate=winner), "confirm"),
            rounds=rounds,
            finish_once=now.iterative and not now.front.whole_units,
            sigma=now.sigma,
        )
        answer = yield Turn(ask=contest, standing=now)
        assert isinstance(answer, Comparison)
        now = now.heard(answer)
        now = replace(now, proofs=(*now.proofs, answer))
        interval = answer.interval(now.facts.objective)
        if answer.cut_short:
            missing = rounds - len(answer.counted)
            now = now.skip(f"the rest of the proof of {winner.label}", now.rounds_s(missing))
        if interval is None or answer.cut_short or holds(now, answer):
            break
        if interval.estimate <= 1 + now.facts.smallest_gain:
            break
    return back_to(now, proven_candidate(now))


def holds(now: Standing, proof: Comparison) -> bool:
    """Whether `proof` lies above the smallest gain worth a change."""
    return proof.proven(now.facts.objective, now.facts.smallest_gain)


def proven_proofs(now: Standing) -> tuple[Comparison, ...]:
    """The chain of proofs from the original to the most that was proven."""
    return tuple(proof for proof in now.proofs if holds(now, proof))


def proven_candidate(now: Standing) -> Candidate:
    """The most that was proven; the original if nothing was."""
    chain = proven_proofs(now)
    return chain[-1].contest.after.arm.candidate if chain else Candidate()


def front_of(now: Standing, candidate: Candidate) -> Run:
    """A run of what was proven: its best in the proof, or the original's."""
    for proof in reversed(now.proofs):
        if proof.contest.after.arm.candidate.key == candidate.key and proof.runs("after"):
            return max(proof.runs("after"), key=now.facts.objective.score)
    return now.original


def back_to(now: Standing, candidate: Candidate) -> Standing:
    """The best so far is what was proven, and nothing more."""
    run = front_of(now, candidate) if candidate.changes else None
    return replace(now, best=candidate, best_run=run)


def side(now: Standing, arm: Arm, purpose: Purpose) -> Ask:
    """One arm of a contest; a proof is made of fresh processes only."""
    return Ask(
        arm=arm,
        purpose=purpose,
        plan=now.plan(arm.candidate),
        fresh=purpose == "confirm",
        expected_s=now.price_s + arm.extra_s,
    )


def planned_rounds(
    now: Standing, expected_gain: float, process_s: float, *, again: bool = False
) -> int:
    """Rounds that the noise of this host asks for, as far as the budget allows; 0 if none do.

    Fixed before the first; none is added after a look. The bounds of n pairs of processes with a
    relative spread s are about 3.5 s / sqrt(n) wide to each side, and twice as many pairs leave
    room for a gain that was flattered when it was chosen. Where the budget buys fewer than exact
    bounds need, those it buys must do.
    """
    affordable = int(now.left_s / max(MARGIN * 2 * process_s, 1e-9))
    if affordable < MOST_RESERVED:
        return affordable if affordable >= FEWEST_ROUNDS and not again else 0
    fewest = MOST_RESERVED if expected_gain >= SMALL_GAIN else ROUNDS_SMALL_GAIN
    gap = math.log(expected_gain / (1 + now.facts.smallest_gain)) if expected_gain > 0 else 0.0
    wanted = math.ceil(2 * (3.5 * now.noise / gap) ** 2) if gap > 0 else MOST_ROUNDS
    return min(max(fewest, wanted), affordable, MOST_ROUNDS)
