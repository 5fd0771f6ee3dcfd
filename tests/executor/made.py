"""Comparisons made of rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.executor.comparison import AFTER, BEFORE, Comparison
from advisor.executor.requests import ABTest, TrialRequest, TrialResult, Variant
from advisor.executor.rounds import Round
from advisor.model import Disturbance, MeasurePlan
from tests.runs import a_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUEST = TrialRequest(variant=Variant(), purpose="confirm", plan=MeasurePlan())


def result(rate: float, others: float = 0.0) -> TrialResult:
    """A run at `rate` beside a load of so many CPUs."""
    load = Disturbance(disturbed=others > 0, others_cpus=others)
    run = a_run(units_per_s=rate, disturbance=load)
    return TrialResult(id="1", request=REQUEST, result=run, remaining_s=1.0)


def compared(
    rounds: Sequence[tuple[float, float]],
    *,
    others: Mapping[int, tuple[float, float]] | None = None,
    wanted: int | None = None,
    sigma: float = 0.0,
    outside: Sequence[float] = (),
    ab_test: ABTest | None = None,
) -> Comparison:
    """Rounds of (before, after) rates; `others` by number of the round."""
    found = []
    for number, rates in enumerate(rounds, 1):
        loads = (others or {}).get(number, (0.0, 0.0))
        runs = {
            arm: result(rate, load)
            for arm, rate, load in zip((BEFORE, AFTER), rates, loads, strict=True)
        }
        found.append(Round(number=number, order=(BEFORE, AFTER), runs=runs))
    ab_test = ab_test or ABTest(
        purpose="confirm",
        title="t",
        requests=(REQUEST, REQUEST),
        rounds=wanted or len(rounds),
        sigma=sigma,
    )
    baselines = tuple(a_run(units_per_s=rate) for rate in outside)
    return Comparison(ab_test=ab_test, rounds=tuple(found), outside=baselines, remaining_s=1.0)
