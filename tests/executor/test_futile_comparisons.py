"""Rounds that cannot prove any more what they seek end, and those that can go on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from advisor.executor.requests import ABTest, MinimumEffect, TrialRequest, Variant
from advisor.model import MeasurePlan
from advisor.objective import THROUGHPUT
from tests.executor.made import compared
from tests.support.simulator.search import formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.executor.comparison import Comparison

PLANNED = 12
SMALLEST_GAIN = 0.03
WORLDS = 100


def ab_test(minimum_effect: bool = True) -> ABTest:
    """One that seeks a gain of 3 %; its second arm is faster by the switch of the formula."""
    arms = [Variant(), Variant(whatif="channels_last")]
    before, after = (
        TrialRequest(variant=arm, purpose="whatif", plan=MeasurePlan()) for arm in arms
    )
    return ABTest(
        purpose="whatif",
        title="t",
        requests=(before, after),
        rounds=PLANNED,
        minimum_effect=MinimumEffect(objective=THROUGHPUT, gain=SMALLEST_GAIN)
        if minimum_effect
        else None,
    )


def after_rounds(gains: list[float]) -> Comparison:
    """So many rounds with these gains."""
    return compared([(1.0, gain) for gain in gains], ab_test=ab_test())


def ended(gain: float, sigma: float, seed: int) -> Comparison:
    """A comparison of variants that lie `gain` apart, with rounds until it ends."""
    rng = random.Random(seed)
    gains: list[float] = []
    while len(gains) < PLANNED and not after_rounds(gains).is_futile:
        gains.append(gain * rng.lognormvariate(0.0, sigma))
    return after_rounds(gains)


def test_what_gains_enough_is_proven_as_often() -> None:
    """At most one in 20 of what all rounds would have proven is given up."""
    gain, sigma, proven, whole = 1.3, 0.15, 0, 0
    for seed in range(WORLDS):
        rng = random.Random(seed)
        all_of_them = after_rounds([gain * rng.lognormvariate(0, sigma) for _ in range(PLANNED)])
        whole += all_of_them.proven(THROUGHPUT, SMALLEST_GAIN)
        proven += ended(gain, sigma, seed).proven(THROUGHPUT, SMALLEST_GAIN)
    assert whole > WORLDS / 2
    assert proven >= 0.95 * whole


@pytest.mark.parametrize(
    ("minimum_effect", "gain", "rounds"),
    [(True, 1.0, 3), (True, 1.5, PLANNED), (False, 1.0, PLANNED)],
)
def test_a_comparison_that_can_hardly_prove_anything_ends_early(
    tmp_path: Path, minimum_effect: bool, gain: float, rounds: int
) -> None:
    """And no other."""
    engine = on_formula(switches={"channels_last": gain}, observed={"channels_last": False})
    search = formula_search(tmp_path, engine, "lr: 0.1\n", budget_s=1e9)
    found = search.executor.compare(ab_test(minimum_effect))
    assert len(found.rounds) == rounds
    assert not found.cut_short
