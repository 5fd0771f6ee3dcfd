"""Results inside what the user declared: what fewer steps, precision and rounding must pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.experiments.attempts import Arm, Ask, Contest
from advisor.experiments.comparison import AFTER, BEFORE, Comparison
from advisor.model import Candidate, MeasurePlan
from advisor.quality import judge, loss_drift, read_measures
from advisor.strategy.standing import Answer, Standing, Turn

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.model import Run
    from advisor.quality import QualityJudgement
    from advisor.strategy.facts import Data

FIRST_QUALITY = 3.0
"""A quality run may take so many times what a short process does, before one was seen."""
ROUNDS = 1


def quality_ask(arm: Arm, expected_s: float) -> Ask:
    """The quality command with `arm`, to its own end."""
    return Ask(
        arm=arm,
        purpose="quality",
        plan=MeasurePlan(mode="whole"),
        quality=True,
        series="round 1",
        expected_s=expected_s,
    )


def values_of(now: Standing, run: Run | None) -> dict[str, float]:
    """What the declared measures were; empty where one was not printed."""
    measures = now.facts.workload.quality
    found = read_measures(measures, run.stdout_tail) if run is not None else {}
    return found if set(found) == set(measures) else {}


def reference_of(now: Standing) -> dict[str, float]:
    """What tolerances are taken from: the original's quality, from before the first rewrite."""
    return dict(now.facts.quality_reference) or dict(now.quality.before)


def judged(
    now: Standing, arm: Arm, expected_s: float, *, against: Candidate | None = None
) -> Generator[Turn, Answer, tuple[Standing, list[QualityJudgement]]]:
    """The measures of `arm` beside the original's; none where it did not fit or did not end.

    `against` stands in for an original that is too slow for the budget.
    """
    if expected_s > now.left_s - now.reserve_s:
        return now.skip(f"the quality of {arm.label}", expected_s), []
    contest = Contest(
        purpose="quality",
        title=f"quality of {arm.label}",
        before=quality_ask(Arm(candidate=against or Candidate()), 0.0),
        after=quality_ask(arm, expected_s),
        rounds=ROUNDS,
    )
    answer = yield Turn(ask=contest, standing=now)
    assert isinstance(answer, Comparison)
    now = now.heard(answer)
    if not answer.rounds or answer.failure is not None or not answer.runs(AFTER):
        return now, []
    log = now.quality
    if not log.before:
        seen = values_of(now, answer.runs(BEFORE)[0])
        log = replace(log, before=tuple(seen.items()))
        now = replace(now, quality=log)
    reference = reference_of(now)
    if not reference:
        return now, []
    measures = now.facts.workload.quality
    found = judge(measures, reference, read_measures(measures, answer.runs(AFTER)[0].stdout_tail))
    told = tuple((arm.label, judgement) for judgement in found)
    return replace(now, quality=replace(log, judgements=(*log.judgements, *told))), found


def within(
    now: Standing, arm: Arm, run: Run
) -> Generator[Turn, Answer, tuple[Standing, bool, Data]]:
    """Whether `run` of `arm` stayed inside the declared tolerance, and what was seen.

    Losses are compared where both runs had some; without, the quality measures are. Nothing to
    compare is not inside.
    """
    workload = now.facts.workload
    drift = loss_drift(now.front.losses, run.losses)
    if drift is not None and workload.numeric_tolerance is not None:
        inside = drift <= workload.numeric_tolerance
        return now, inside, (("drift", drift), ("tolerance", workload.numeric_tolerance))
    if not workload.quality:
        return now, False, (("unseen", "losses"),)
    now, found = yield from judged(now, arm, FIRST_QUALITY * now.price_s)
    if not found:
        return now, False, (("unseen", "quality"),)
    inside = all(judgement.within for judgement in found)
    if inside and arm.whatif is None:
        now = with_values(now, found)
    return now, inside, seen_as_data(found)


def with_values(now: Standing, found: list[QualityJudgement]) -> Standing:
    """`found` is the quality of the best so far."""
    after = tuple((j.measure, j.value) for j in found if j.value is not None)
    return replace(now, quality=replace(now.quality, after=after))


def seen_as_data(found: list[QualityJudgement]) -> Data:
    """`measure=value` for each judgement, and the first that is beyond its limit."""
    beyond = next((j for j in found if not j.within), None)
    told: Data = tuple((f"value of {j.measure}", j.value) for j in found)
    if beyond is not None:
        told = (*told, ("beyond", beyond.measure), ("limit", beyond.limit))
    return told
