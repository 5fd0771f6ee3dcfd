"""What a gate says it would have caught, it catches: the tables against the rule as it is."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from advisor.gate import power
from advisor.gate.assumptions import Arms
from advisor.gate.rule import LOOKS, Rule, judge

RULE = Rule()


def arms(seed: str, shift: float, sigma: float) -> Arms:
    rng = random.Random(seed)
    base, head = ([rng.gauss(0, sigma) for _ in range(LOOKS[-1])] for _ in range(2))
    return Arms(base=base, head=[value - shift for value in head])


def gate(seed: str, shift: float, sigma: float, pairs: int = LOOKS[-1]):
    """The judgement on a gate with this slowdown, and the differences it looked at."""
    drawn = arms(seed, shift, sigma)
    values = [b - h for b, h in zip(drawn.base, drawn.head, strict=True)][:pairs]
    judgement = judge({"w": values}, RULE, {"w": drawn})["w"]
    return judgement, values[: judgement.interval.n]


@pytest.mark.parametrize("sigma", [0.004, 0.02])
def test_what_a_gate_says_it_would_have_caught_is_red_nine_times_in_ten(sigma: float) -> None:
    """Each gate of equal arms names a slowdown; another gate with that slowdown is played."""
    red, gates = 0, 100
    for seed in range(gates):
        _, used = gate(f"equal {seed}", 0.0, sigma)
        shift = power.red_at(statistics.stdev(used), len(used), RULE)
        assert shift is not None
        red += gate(f"slower {seed}", shift, sigma)[0].outcome == "regression"
    assert 0.83 <= red / gates <= 0.98


def test_the_threshold_that_a_runner_supports_lets_equal_arms_pass() -> None:
    passed, gates, sigma = 0, 100, 0.02
    for seed in range(gates):
        _, used = gate(f"calibrated {seed}", 0.0, sigma, pairs=12)
        tau = power.threshold_for(statistics.stdev(used), len(used), RULE, by=24)
        assert tau is not None
        drawn = arms(f"gated {seed}", 0.0, sigma)
        values = [b - h for b, h in zip(drawn.base, drawn.head, strict=True)]
        rule = Rule(threshold=-math.expm1(-tau))
        passed += judge({"w": values}, rule, {"w": drawn})["w"].outcome == "pass"
    assert 0.83 <= passed / gates <= 0.98


def test_it_is_the_rules_own_threshold_and_not_zero() -> None:
    """A slowdown that is allowed never turns red, however quiet the runner is."""
    assert power.red_at(1e-6, 24, RULE) == pytest.approx(RULE.tau, abs=1e-5)
    wide = Rule(threshold=0.10)
    assert power.red_at(0.01, 24, wide) > power.red_at(0.01, 24, RULE) > RULE.tau


def test_more_workloads_fewer_pairs_and_less_known_noise_ask_for_more() -> None:
    assert power.red_at(0.01, 24, RULE, workloads=20) > power.red_at(0.01, 24, RULE)
    assert power.red_at(0.01, 17, RULE, by=17) > power.red_at(0.01, 17, RULE)
    assert power.red_at(0.01, 5, RULE) > power.red_at(0.01, 24, RULE)


def test_where_no_regression_can_fall_nothing_is_promised() -> None:
    assert power.red_at(0.01, 9, RULE, by=9) is None
    assert power.red_at(0.01, 4, RULE) is None
    assert power.red_at(0.01, 24, Rule(looks=(6, 12, 24))) is None
