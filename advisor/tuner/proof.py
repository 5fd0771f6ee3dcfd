"""The proof: how many rounds a gain needs, and what was proven."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor import stats
from advisor.executor.comparison import (
    AFTER,
    ALPHA,
    BEFORE,
    MOST_COLLAPSED,
    Comparison,
)
from advisor.executor.requests import ABTest, TrialRequest, Variant
from advisor.model import Candidate
from advisor.tuner import results
from advisor.tuner.asking import SearchStep, Stage
from advisor.tuner.standing import FEWEST_ROUNDS, GOOD_ROUNDS, MARGIN, MOST_RESERVED, TunerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Purpose, Run
    from advisor.tuner.facts import Data

OUTLIVING_ROUNDS = stats.pairs_that_outlive(1, ALPHA)
"""Fewest whose exact bounds outlive one round that went wrong: 12."""
HOPE = 1.25
"""A first proof is begun though it may take so many times what is left: prices are guesses, what is
left buys nothing else, and a process that does not fit is never started."""
MOST_ROUNDS = 20
"""More narrow the bounds too slowly to be worth their time."""


def prove(now: TunerState, winner: Candidate) -> Stage:
    """`winner` against the most that was proven so far; without a proof it is given up.

    A proof that stayed open is made once more, with rounds of its own, where the budget allows.
    """
    held = proven_candidate(now)
    if winner.key == held.key or now.best_run is None:
        return back_to(now, held)
    title = f"{winner.label} against {held.label}"
    for again in (False, True):
        expected = now.gain(now.front, front_of(now, held))
        finish_s = to_finish_s(now)
        rounds = planned_rounds(now, expected, now.rounds_s(1), again=again, kept_s=finish_s)
        if finish_s and rounds < FEWEST_ROUNDS:
            now = now.skip(f"one whole batch with {winner.label}", finish_s, matters=False)
            finish_s = 0.0
            rounds = planned_rounds(now, expected, now.rounds_s(1), again=again)
        if rounds < FEWEST_ROUNDS:
            what, fewest = ("a second", GOOD_ROUNDS) if again else ("the", FEWEST_ROUNDS)
            now = now.skip(f"{what} proof of {winner.label}", now.rounds_s(fewest))
            break
        ab_test = ABTest(
            purpose="confirm",
            title=title + ", again" * again,
            requests=(
                side(now, Variant(candidate=held), "confirm"),
                side(now, Variant(candidate=winner), "confirm", now.front),
            ),
            rounds=rounds,
            max_rounds=wanted_rounds(now, expected, again=again),
            finish_once=finish_s > 0,
            sigma=now.sigma,
        )
        answer = yield SearchStep(request=ab_test, standing=now)
        assert isinstance(answer, Comparison)
        now = now.heard(answer)
        now = replace(now, proofs=(*now.proofs, answer))
        finished = [results.lost(now.originals, run) for run in answer.runs(AFTER)]
        if lost := next(filter(None, finished), ()):
            now = given_up(now, winner, lost)
            break
        interval = answer.interval(now.facts.objective)
        if answer.cut_short:
            missing = max(1, rounds - len(answer.counted))  # a disturbed one was being repeated
            now = now.skip(f"the rest of the proof of {winner.label}", now.rounds_s(missing))
        if interval is None or answer.cut_short or holds(now, answer):
            break
        if answer.collapsed(AFTER) > MOST_COLLAPSED:
            break
        if interval.estimate <= 1 + now.facts.smallest_gain:
            break
    return back_to(now, proven_candidate(now))


def given_up(now: TunerState, candidate: Candidate, lost: Data) -> TunerState:
    """`candidate` loses results, so nothing that was proven of it counts."""
    for change in candidate.changes:
        if change.kind == "batch_size":
            key = (change.document, change.path)
            now = now.settle(key, "kept", "loses-results", **dict(lost), value=change.new)
    kept = tuple(p for p in now.proofs if p.ab_test.after.variant.candidate.key != candidate.key)
    return back_to(replace(now, proofs=kept), proven_candidate(replace(now, proofs=kept)))


def to_finish_s(now: TunerState) -> float:
    """What the best takes to finish a batch of items, once, in its proof; 0 where it need not.

    It must where nothing else will make it do so. Where quality is declared it does in the quality
    command, with fewer steps or without.
    """
    run = now.front
    if not now.iterative or run.whole_units or now.facts.workload.quality:
        return 0.0
    return MARGIN * (run.effects.batch or 1.0) / run.units_per_s


def holds(now: TunerState, proof: Comparison) -> bool:
    """Whether `proof` lies above the smallest gain worth a change, inside every constraint; where
    no run of the other variant was inside them, that alone is the gain."""
    objective = now.facts.objective
    if any(objective.broken(run) for run in proof.runs(AFTER)):
        return False
    if mends(now, proof.runs(BEFORE)):
        whole = proof.failure is None and not proof.cut_short
        return whole and len(proof.runs(AFTER)) >= FEWEST_ROUNDS
    return proof.proven(objective, now.facts.smallest_gain)


def mends(now: TunerState, before: Sequence[Run]) -> bool:
    """Whether every run of what there was is outside of a constraint."""
    return bool(before) and all(now.facts.objective.broken(run) for run in before)


def proven_proofs(now: TunerState) -> tuple[Comparison, ...]:
    """The chain of proofs from the original to the most that was proven."""
    return tuple(proof for proof in now.proofs if holds(now, proof))


def proven_candidate(now: TunerState) -> Candidate:
    """The most that was proven; the original if nothing was."""
    chain = proven_proofs(now)
    return chain[-1].ab_test.after.variant.candidate if chain else Candidate()


def front_of(now: TunerState, candidate: Candidate) -> Run:
    """A run of what was proven: its best in the proof, or the original's."""
    runs = now.proof_runs(candidate)
    return now.facts.objective.best(runs) if runs else now.original


def back_to(now: TunerState, candidate: Candidate) -> TunerState:
    """The best so far is what was proven, and nothing more."""
    run = front_of(now, candidate) if candidate.changes else None
    return replace(now, best=candidate, best_run=run)


def side(
    now: TunerState, variant: Variant, purpose: Purpose, ran: Run | None = None
) -> TrialRequest:
    """One variant of a contest, which takes what it took when it `ran`; a proof is made of fresh
    processes only."""
    return TrialRequest(
        variant=variant,
        purpose=purpose,
        plan=now.plan(variant.candidate),
        fresh=purpose == "confirm",
        expected_s=now.prices.again_s(ran) + variant.extra_s,
    )


def planned_rounds(
    now: TunerState,
    expected_gain: float,
    round_s: float,
    *,
    again: bool = False,
    kept_s: float = 0.0,
) -> int:
    """`wanted_rounds`, or those that the budget buys; 0 if it buys none. `kept_s` of it are for
    something else."""
    affordable = int((now.remaining_s - kept_s) / max(round_s, 1e-9))
    if not again and HOPE * (now.remaining_s - kept_s) >= FEWEST_ROUNDS * round_s:
        affordable = max(affordable, FEWEST_ROUNDS)
    if affordable < (GOOD_ROUNDS if again else FEWEST_ROUNDS):
        return 0
    return min(wanted_rounds(now, expected_gain, again=again), affordable)


def wanted_rounds(now: TunerState, expected_gain: float, *, again: bool = False) -> int:
    """Rounds that the gain and the noise of this host ask for.

    As many as make Student's bounds half as wide as the gain lies above the smallest worth a
    change: a large gain needs few, a small one many, and one that was flattered when it was chosen
    still has room. Fixed before the first; none is added after a look.
    """
    least = GOOD_ROUNDS if now.facts.consents else MOST_RESERVED
    least = OUTLIVING_ROUNDS if again else least
    if mends(now, now.originals):
        return least
    gap = math.log(expected_gain / (1 + now.facts.smallest_gain)) if expected_gain > 0 else 0.0
    return next(
        (
            rounds
            for rounds in range(least, MOST_ROUNDS)
            if stats.t_quantile(0.975, rounds) * now.sigma / rounds**0.5 <= gap / 2
        ),
        MOST_ROUNDS,
    )
