"""Comparisons made of runs, or of their rates."""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, BEFORE, ABTest, TrialRequest, TrialResult, Variant
from advisor.executor.rounds import Round
from advisor.model import Disturbance, MeasurePlan, Run
from tests.runs import a_run

REQUEST = TrialRequest(variant=Variant(), purpose="confirm", plan=MeasurePlan())


def comparison(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    requests: tuple[TrialRequest, TrialRequest] = (REQUEST, REQUEST),
    outside: Sequence[Run] = (),
    ab_test: ABTest | None = None,
    **test: Any,
) -> Comparison:
    """Rounds of these runs; `test`: fields of the A/B test."""
    arms, planned = (BEFORE, AFTER), {"purpose": "confirm", "rounds": len(before)}
    ab_test = ab_test or ABTest(requests=requests, **{**planned, **test})
    rounds = []
    for number, runs in enumerate(zip(before, after, strict=True), 1):
        results = {
            arm: TrialResult(id="1", request=request, result=run, remaining_s=1.0)
            for arm, request, run in zip(arms, requests, runs, strict=True)
        }
        rounds.append(Round(number=number, runs=results))
    return Comparison(
        ab_test=ab_test, rounds=tuple(rounds), outside=tuple(outside), remaining_s=1.0
    )


def compared(
    rates: Sequence[tuple[float, float]],
    *,
    others: Mapping[int, tuple[float, float]] | None = None,
    outside: Sequence[float] = (),
    probe_share: float = 0.0,
    **test: Any,
) -> Comparison:
    """Rounds of (before, after) rates; `others`: CPUs that others held, by number of the round.

    `probe_share`: of the first arm's windows.
    """
    arms: tuple[list[Run], list[Run]] = ([], [])
    for number, pair in enumerate(rates, 1):
        loads = (others or {}).get(number, (0.0, 0.0))
        for runs, rate, cpus in zip(arms, pair, loads, strict=True):
            load = Disturbance(disturbed=cpus > 0, others_cpus=cpus)
            ours = probe_share if runs is arms[0] else 0.0
            runs.append(a_run(units_per_s=rate, disturbance=load, probe_share=ours))
    baselines = [a_run(units_per_s=rate) for rate in outside]
    return comparison(*arms, outside=baselines, **test)
