"""The sequential test: its error budget, its looks, and what withholds a verdict."""

import math
import random
from collections.abc import Mapping, Sequence

import pytest

from advisor.gate.runner import orders
from advisor.gate.sequential_test import (
    ALPHA,
    LOOKS,
    SERIAL_LIMIT,
    Judgement,
    judge as judge_at,
    level,
    serial_correlation_z,
)

TAU = -math.log1p(-0.05)
EVIDENT = TAU + math.log(1.5)


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
    return found.outcome, None if found.outcome == "inconclusive" else found.interval.n


def five(slowest: float, fastest: float) -> list[float]:
    return [slowest, *[(slowest + fastest) / 2] * 3, fastest]


@pytest.mark.parametrize("verdict", ["pass", "regression"])
def test_the_shares_spend_the_budget_once(verdict) -> None:
    assert LOOKS == (5, 9, 12, 17, 24)
    assert sum(level(look, verdict) for look in LOOKS) == pytest.approx(ALPHA) == 0.05
    assert level(5, "regression") == level(9, "regression") == 0


OPEN = ("inconclusive", None)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (around(0.0, 5), ("pass", 5)),
        (around(0.0, 4), OPEN),
        (around(0.4, 12), ("regression", 12)),
        (around(0.4, 11), OPEN),
        ([*around(0.0, 5), *around(0.9, 19)], ("pass", 5)),  # later pairs change nothing
        (around(TAU, 24, spread=0.02), OPEN),
        (five(0.99, 0.99), ("regression", 5)),  # evident: head takes 2.7 times as long
        (five(EVIDENT + 0.01, 0.5), ("regression", 5)),
        (five(EVIDENT - 0.01, 0.5), OPEN),
        (five(0.6, 1.2), OPEN),  # the pairs differ by more than they exceed it
    ],
)
def test_a_verdict_falls_at_its_look_and_never_before(values, found) -> None:
    assert outcome(values) == found


def test_an_evident_slowdown_is_red_among_many_workloads() -> None:
    """Where chance asks for more pairs."""
    quiet = {n: around(0.0, 5) for n in range(19)}
    assert judge({**quiet, "w": five(0.99, 0.99)})["w"].outcome == "regression"


def test_the_mean_must_show_the_slowdown_as_well() -> None:
    """A base that is slow now and then does not lend its good runs to a verdict against head."""
    values = around(TAU + 0.02, 24)
    assert outcome(values)[0] == "regression"
    values[3] = values[11] = values[20] = -0.5
    assert sum(values) / 24 < TAU
    assert outcome(values)[0] == "inconclusive"


RISING = sorted(around(0.02, 5, spread=0.05))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (RISING, ("inconclusive", True)),
        # named only where it withheld the last verdict
        ([*RISING, *around(TAU, 19, spread=0.1)], ("inconclusive", False)),
        (sorted(around(TAU + 0.02, 12, spread=0.035)), ("inconclusive", True)),
        (around(TAU + 0.02, 12, spread=0.035), ("regression", False)),
        # it cannot matter where all lie further from the threshold than from each other
        (sorted(around(0.0, 5, spread=0.01)), ("pass", False)),
        (sorted(around(0.4, 12, spread=0.01)), ("regression", False)),
    ],
)
def test_correlated_pairs_delay_every_verdict(values, found) -> None:
    assert serial_correlation_z(RISING) > SERIAL_LIMIT
    judged = judge({"w": values})["w"]
    assert (judged.outcome, judged.correlated) == found


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
def test_serial_correlation_by_hand(values, z) -> None:
    assert serial_correlation_z(values) == pytest.approx(z)


def test_several_regressions_are_proven_step_down() -> None:
    """One of twenty needs level / 20, which twelve pairs can give."""
    quiet = {f"q{n}": around(0.0, 24) for n in range(19)}
    found = judge({**quiet, "slow": around(0.4, 24)})
    assert found["slow"].outcome == "regression"
    assert found["slow"].interval.n == 12
    assert all(found[name].outcome == "pass" for name in quiet)


def test_a_proof_makes_the_next_one_cheaper() -> None:
    """Six averages of 78 lie below tau: too many at level / 2, few enough once one is proven."""
    above = [0.07, 0.01, 0.11, 0.04, 0.09, 0.02, 0.10, 0.03, 0.08, 0.05, 0.06]
    values = [TAU + d for d in (*above[:5], -0.055, *above[5:])]
    assert outcome(values) == ("regression", 12)
    found = judge({"a": around(0.4, 12), "b": values})
    assert {found[name].outcome for name in "ab"} == {"regression"}
    alone = judge({"a": around(TAU, 12, spread=0.02), "b": values})
    assert alone["b"].outcome == "inconclusive"


def test_orders_are_random_seeded_and_balanced() -> None:
    drawn = [[next(of) for _ in range(24)] for of in map(orders, (*range(20), 3))]
    assert drawn[3] == drawn[-1]
    assert len(set(map(tuple, drawn))) > 15
    for order in drawn:
        for first in range(0, 24, 2):
            assert {*order[first : first + 2]} == {("base", "head"), ("head", "base")}
    assert {order[4][0] for order in drawn} == {"base", "head"}
