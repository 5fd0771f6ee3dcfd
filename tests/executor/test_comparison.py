"""Rounds to an interval: what two to six of them may claim, and which of them count."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING

import pytest

from advisor.executor.comparison import AFTER, BEFORE, Comparison, alike, bounds, chained
from advisor.executor.requests import ABTest, TrialRequest, TrialResult, Variant
from advisor.executor.rounds import Round, interleaved
from advisor.model import Disturbance, MeasurePlan
from advisor.objective import THROUGHPUT
from tests.runs import a_run

if TYPE_CHECKING:
    from collections.abc import Mapping

SEEDS = 2000
SIGMA = 0.05 * math.sqrt(2)
"""Of a log ratio, where a process is off by 5 %."""
ASK = TrialRequest(variant=Variant(), purpose="confirm", plan=MeasurePlan())


def attempt(rate: float, others: float = 0.0) -> TrialResult:
    """A run at `rate` while others held so many CPUs."""
    held = Disturbance(disturbed=others > 0, others_cpus=others)
    run = a_run(units_per_s=rate, disturbance=held)
    return TrialResult(id="1", request=ASK, result=run, remaining_s=1.0)


def compared(
    rounds: list[tuple[float, float]],
    *,
    others: Mapping[int, tuple[float, float]] | None = None,
    wanted: int | None = None,
    sigma: float = 0.0,
) -> Comparison:
    """Rounds of (before, after) rates; `others` by number of the round."""
    found = []
    for number, (before, after) in enumerate(rounds, 1):
        held = (others or {}).get(number, (0.0, 0.0))
        runs = {BEFORE: attempt(before, held[0]), AFTER: attempt(after, held[1])}
        found.append(
            Round(
                number=number,
                order=(BEFORE, AFTER),
                runs=runs,
                disturbed=", ".join(a for a, h in zip(runs, held, strict=True) if h) or None,
            )
        )
    ab_test = ABTest(
        purpose="confirm",
        title="t",
        before=ASK,
        after=ASK,
        rounds=wanted or len(rounds),
        sigma=sigma,
    )
    return Comparison(ab_test=ab_test, rounds=tuple(found), remaining_s=1.0)


# --- bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [2, 3, 4, 5, 6])
def test_what_is_equal_is_hardly_ever_proven_faster(rounds: int) -> None:
    """A against A, 2,000 times: at most 4 % lie above one, and the bounds hold 92 % or more."""
    rng = random.Random(rounds)
    found = [bounds([rng.gauss(0, SIGMA) for _ in range(rounds)], SIGMA) for _ in range(SEEDS)]
    assert sum(f is not None and f.low > 1 for f in found) <= 0.04 * SEEDS
    assert sum(f is not None and f.low <= 1 <= f.high for f in found) >= 0.92 * SEEDS


def test_two_rounds_that_agree_by_luck_prove_no_more_than_the_host_allows() -> None:
    """The spread is never taken to be less than what is known of this host."""
    lucky = bounds([0.10, 0.1001], SIGMA)
    assert lucky is not None
    assert lucky.low < 1
    trusting = bounds([0.10, 0.1001])
    assert trusting is not None
    assert trusting.low > 1.09


def test_a_large_gain_is_proven_by_two_rounds() -> None:
    """Where it is far beyond the noise, more rounds would be a waste."""
    found = bounds([math.log(3.0), math.log(3.1)], 0.02 * math.sqrt(2))
    assert found is not None
    assert found.low > 1.03


def test_one_round_is_no_interval() -> None:
    """Nothing is told from one draw."""
    assert bounds([1.0]) is None
    assert bounds([]) is None


def test_from_six_rounds_on_the_bounds_are_the_exact_ones() -> None:
    """The least of the averages, whatever the noise is thought to be."""
    gains = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    found = bounds(gains, 5.0)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((math.exp(0.1), math.exp(0.6)))


@pytest.mark.parametrize("rounds", [(2, 2), (3, 5), (6, 6), (10, 6)])
def test_two_steps_together_hold_their_product(rounds: tuple[int, int]) -> None:
    """2x and then 1.5x, each with its own rounds: 3x lies inside in at least 92 of a hundred."""
    rng = random.Random(sum(rounds))
    held = proven = 0
    for _ in range(SEEDS // 4):
        first, second = (
            compared(
                [
                    (math.exp(rng.gauss(0, 0.05)), gain * math.exp(rng.gauss(0, 0.05)))
                    for _ in range(n)
                ],
                sigma=SIGMA,
            )
            for n, gain in zip(rounds, (2.0, 1.5), strict=True)
        )
        found = chained([first, second], THROUGHPUT)
        assert found is not None
        assert found.n == min(rounds)
        held += found.low <= 3.0 <= found.high
        proven += found.low > 1.0
    assert held >= 0.92 * SEEDS // 4
    assert proven or rounds == (2, 2)


def test_one_step_is_its_own_chain() -> None:
    """And none is nothing."""
    one = compared([(1.0, 2.0), (1.0, 2.1)])
    assert chained([one], THROUGHPUT) == one.interval(THROUGHPUT)
    assert chained([], THROUGHPUT) is None


# --- which rounds count -----------------------------------------------------------------------


def test_rounds_that_others_disturbed_are_left_out_whole() -> None:
    """Where enough undisturbed ones were had, both arms of a disturbed one go."""
    rates = [(1.0, 2.0), (1.0, 9.0), (1.0, 2.0)]
    found = compared(rates, others={2: (0.0, 1.0)}, wanted=2)
    assert [each.number for each in found.counted] == [1, 3]
    assert not found.used_contended_rounds


def test_on_a_machine_that_stays_busy_rounds_disturbed_alike_stand_in() -> None:
    """1.0 and 1.1 CPUs are alike, 0.1 and 1.0 are not: that arm alone was slowed."""
    held = {1: (1.0, 1.1), 2: (0.1, 1.0), 3: (1.0, 0.9)}
    found = compared([(1.0, 2.0), (1.0, 0.5), (1.0, 2.0)], others=held)
    assert [each.number for each in found.counted] == [1, 3]
    assert found.used_contended_rounds
    assert found.proven(THROUGHPUT, 0.03)


def test_beside_a_single_fair_round_the_least_disturbed_of_the_others_stands_in() -> None:
    """A large gain is proven all the same, a small one is not: one arm alone was slowed."""
    others = {1: (0.1, 0.9), 3: (0.0, 0.5)}
    large = compared([(1.0, 20.0), (1.0, 80.0), (1.0, 90.0)], others=others)
    assert [r.number for r in large.counted] == [2, 3]
    assert large.used_contended_rounds
    interval = large.interval(THROUGHPUT)
    assert interval is not None
    assert 1 < interval.low < 80 / 9
    small = compared([(1.0, 2.0), (1.0, 8.0), (1.0, 9.0)], others=others)
    assert not small.proven(THROUGHPUT, 0.03)
    never_fair = compared([(1.0, 80.0), (1.0, 90.0)], others={1: (0.1, 0.9), 2: (0.1, 0.9)})
    assert not never_fair.counted
    enough = compared([(1.0, 80.0), (1.0, 90.0), (1.0, 40.0)], others={3: (0.1, 0.9)})
    assert [r.number for r in enough.counted] == [1, 2]


@pytest.mark.parametrize(
    ("held", "same"),
    [((0.0, 0.2), True), ((0.0, 0.3), False), ((2.0, 2.4), True), ((2.0, 3.0), False)],
)
def test_alike_is_a_quarter(held: tuple[float, float], *, same: bool) -> None:
    """Of a CPU, or of what others held where that is more."""
    assert alike({BEFORE: attempt(1.0, held[0]), AFTER: attempt(1.0, held[1])}) is same


# --- interleaving -----------------------------------------------------------------------------


def test_the_order_flips_with_every_round_that_counts() -> None:
    """A disturbed round is run again whole, in its own order."""
    asked: list[str] = []

    def run(arm: str, number: int) -> str:
        asked.append(f"{number}{arm}")
        return arm

    rounds = interleaved(
        "ab", run, disturbed=lambda _: "somebody" if asked[-1].startswith("2") else None
    )
    found = list(itertools.islice(rounds, 4))
    assert asked == ["1a", "1b", "2b", "2a", "3b", "3a", "4a", "4b"]
    assert [each.disturbed for each in found] == [None, "somebody", None, None]


def test_a_round_that_broke_is_the_last() -> None:
    """The other arm is not run any more."""
    rounds = list(
        interleaved("ab", lambda arm, _: arm, disturbed=lambda _: None, broken=lambda r: r == "a")
    )
    assert len(rounds) == 1
    assert rounds[0].broken
    assert set(rounds[0].runs) == {"a"}
