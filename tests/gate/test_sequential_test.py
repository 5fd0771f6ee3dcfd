"""The sequential test: its error budget, its looks, and what withholds a verdict."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from advisor.gate.runner import orders
from advisor.gate.sequential_test import (
    ALPHA,
    LOOKS,
    SERIAL_LIMIT,
    judge as judge_at,
    level,
    serial_correlation_z,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.gate.sequential_test import Judgement

TAU = -math.log1p(-0.05)


def around(centre: float, n: int = 24, spread: float = 0.001) -> list[float]:
    """Values about `centre`, in an order without correlation."""
    rng = random.Random(7)
    values = [centre + spread * (i - (n - 1) / 2) / n for i in range(n)]
    while abs(serial_correlation_z(values)) > 0.5:
        rng.shuffle(values)
    return values


def judge(values: Mapping[object, Sequence[float]]) -> dict[object, Judgement]:
    """Judgements at the same threshold of 5 %."""
    return judge_at(values, dict.fromkeys(values, TAU))


def outcome(values: list[float]) -> tuple[str, int | None]:
    found = judge({"w": values})["w"]
    return found.outcome, found.looked_at


@pytest.mark.parametrize("verdict", ["pass", "regression"])
def test_the_shares_spend_the_budget_once(verdict) -> None:
    assert LOOKS == (5, 9, 12, 17, 24)
    assert sum(level(look, verdict) for look in LOOKS) == pytest.approx(ALPHA) == 0.05


def test_equal_code_passes_after_five_pairs_and_never_before() -> None:
    assert outcome(around(0.0, 5)) == ("pass", 5)
    assert outcome(around(0.0, 4)) == ("inconclusive", None)


def test_a_proven_slowdown_is_red_after_twelve_pairs_and_never_before() -> None:
    assert outcome(around(0.4, 12)) == ("regression", 12)
    assert outcome(around(0.4, 11)) == ("inconclusive", None)
    assert level(5, "regression") == level(9, "regression") == 0


@pytest.mark.parametrize(
    ("slowest", "fastest", "found"),
    [
        (0.99, 0.99, ("regression", 5)),  # head takes 2.7 times as long
        (TAU + math.log(1.5) + 0.01, 0.5, ("regression", 5)),
        (TAU + math.log(1.5) - 0.01, 0.5, ("inconclusive", None)),
        (0.6, 1.2, ("inconclusive", None)),  # the pairs differ by more than they exceed it
    ],
)
def test_an_evident_slowdown_is_red_after_five_pairs(slowest, fastest, found) -> None:
    """Also among many workloads, where chance asks for more pairs."""
    values = [slowest, *[(slowest + fastest) / 2] * 3, fastest]
    assert outcome(values) == found
    quiet = {n: around(0.0, 5) for n in range(19)}
    assert (judge({**quiet, "w": values})["w"].outcome == "regression") is (found[1] == 5)


def test_a_decision_does_not_change_with_later_pairs() -> None:
    values = [*around(0.0, 5), *around(0.9, 19)]
    assert outcome(values) == ("pass", 5)


def test_bounds_at_the_threshold_decide_nothing() -> None:
    assert outcome(around(TAU, 24, spread=0.02))[0] == "inconclusive"


def test_the_mean_must_show_the_slowdown_as_well() -> None:
    """A base that is slow now and then does not lend its good runs to a verdict against head."""
    values = around(TAU + 0.02, 24)
    assert outcome(values)[0] == "regression"
    values[3] = values[11] = values[20] = -0.5
    assert sum(values) / 24 < TAU
    assert outcome(values)[0] == "inconclusive"


def test_correlated_pairs_delay_every_verdict() -> None:
    rising = sorted(around(0.02, 5, spread=0.05))
    assert serial_correlation_z(rising) > SERIAL_LIMIT
    found = judge({"w": rising})["w"]
    assert (found.outcome, found.correlated) == ("inconclusive", True)


def test_correlation_is_named_only_where_it_withheld_the_last_verdict() -> None:
    values = [*sorted(around(0.02, 5, spread=0.05)), *around(TAU, 19, spread=0.1)]
    found = judge({"w": values})["w"]
    assert (found.outcome, found.correlated) == ("inconclusive", False)


def test_correlated_pairs_delay_a_regression() -> None:
    rising = sorted(around(TAU + 0.02, 12, spread=0.035))
    assert min(rising) > TAU
    assert outcome(rising)[0] == "inconclusive"
    assert outcome(around(TAU + 0.02, 12, spread=0.035)) == ("regression", 12)


def test_correlation_that_cannot_matter_delays_nothing() -> None:
    """All pairs lie further from the threshold than from each other."""
    assert outcome(sorted(around(0.0, 5, spread=0.01))) == ("pass", 5)
    assert outcome(sorted(around(0.4, 12, spread=0.01))) == ("regression", 12)


@pytest.mark.parametrize(
    ("values", "z"),
    [
        # 2 - sum of squared rank steps / sum of squares about the mean, over sqrt(20 / (5n + 7))
        ([1, 2, 3, 4, 5], (2 - 4 / 10) / math.sqrt(20 / 32)),
        ([1, 5, 2, 4, 3], (2 - 30 / 10) / math.sqrt(20 / 32)),
        ([1, 1, 1, 1, 1], 0.0),
        ([1, 1, 2, 2, 3], (2 - 6.25 / 9) / math.sqrt(20 / 32)),  # ranks 1.5, 1.5, 3.5, 3.5, 5
    ],
)
def test_serial_correlation_by_hand(values: list[float], z: float) -> None:
    assert serial_correlation_z(values) == pytest.approx(z)


def test_several_regressions_are_proven_step_down() -> None:
    """One of twenty needs level / 20, which twelve pairs can give."""
    quiet = {f"q{n}": around(0.0, 24) for n in range(19)}
    found = judge({**quiet, "slow": around(0.4, 24)})
    assert (found["slow"].outcome, found["slow"].looked_at) == ("regression", 12)
    assert all(found[name].outcome == "pass" for name in quiet)


@pytest.mark.parametrize("workloads", [1, 10, 20])
def test_any_false_red_is_as_rare_with_many_workloads(workloads: int) -> None:
    """All at the threshold: one of them is red in at most one of twenty gates."""
    rng, gates = random.Random(workloads), 100
    red = 0
    for _ in range(gates):
        drawn = {n: [rng.gauss(TAU, 0.01) for _ in range(24)] for n in range(workloads)}
        red += any(j.outcome == "regression" for j in judge(drawn).values())
    assert red <= 11  # P(more) < 1 % for a rate of 5 %


def test_a_proof_makes_the_next_one_cheaper() -> None:
    """Six averages of 78 lie below tau: too many at level / 2, few enough once one is proven."""
    above = [0.07, 0.01, 0.11, 0.04, 0.09, 0.02, 0.10, 0.03, 0.08, 0.05, 0.06]
    values = [TAU + d for d in (*above[:5], -0.055, *above[5:])]
    assert outcome(values) == ("regression", 12)
    found = judge({"a": around(0.4, 12), "b": values})
    assert {found[name].outcome for name in "ab"} == {"regression"}
    alone = judge({"a": around(TAU, 12, spread=0.02), "b": values})
    assert alone["b"].outcome == "inconclusive"


def test_thresholds_of_their_own() -> None:
    """Equal drops, of which one is allowed."""
    drops = {"strict": around(0.1, 24), "loose": around(0.1, 24)}
    found = judge_at(drops, {"strict": 0.05, "loose": 0.2})
    assert (found["strict"].outcome, found["loose"].outcome) == ("regression", "pass")


def test_every_interval_has_the_same_confidence() -> None:
    values = {"early": around(0.0, 24), "late": around(0.4, 24), "open": around(TAU, 24)}
    assert {round(j.interval.confidence, 9) for j in judge(values).values()} == {0.9}


def test_orders_are_random_seeded_and_balanced() -> None:
    def first(seed: int) -> list[tuple[str, str]]:
        drawn = orders(seed)
        return [next(drawn) for _ in range(24)]

    assert first(3) == first(3)
    assert len({tuple(first(seed)) for seed in range(20)}) > 15
    for seed in range(20):
        drawn = first(seed)
        assert all({drawn[i], drawn[i + 1]} == {("base", "head"), ("head", "base")}
                   for i in range(0, 24, 2))  # fmt: skip
    assert {first(seed)[4][0] for seed in range(20)} == {"base", "head"}
