"""The verdict's rule: error rates, looks, several workloads; one rank off fails here."""

from __future__ import annotations

import math
import random

import pytest

from advisor import stats
from advisor.gate.rule import Rule, drop_pct, judge
from benchmarks.gate_error_rates import WORLDS, rates

RULE = Rule()


def drop(share: float) -> float:
    return -math.log1p(-share)


def around(centre: float, n: int, spread: float = 0.004) -> list[float]:
    """n values, symmetric about `centre`."""
    return [centre + spread * (2 * i / (n - 1) - 1) for i in range(n)]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_false_regressions_and_missed_drops_in_simulated_worlds(world) -> None:
    """At no change <= 1 % red; at an 8 % drop <= 1 % green; at the threshold <= 6 % either way."""
    seeds = 1000
    unchanged, at_threshold, dropped = (rates(world, d, seeds, RULE) for d in (0.0, 0.05, 0.08))
    assert unchanged["regression"] <= 1
    assert dropped["pass"] <= 1
    assert at_threshold["regression"] <= 6
    assert at_threshold["pass"] <= 6


def test_a_quiet_runner_needs_six_pairs_to_say_yes_and_no() -> None:
    assert judge({"w": around(0.0, 6)}, RULE)["w"].outcome == "pass"
    assert judge({"w": around(drop(0.08), 6)}, RULE)["w"].outcome == "regression"
    assert judge({"w": around(0.0, 6)}, RULE)["w"].looked_at == 6


def test_five_pairs_decide_nothing() -> None:
    for centre in (0.0, drop(0.5)):
        judgement = judge({"w": around(centre, 5)}, RULE)["w"]
        assert judgement.outcome == "inconclusive"
        assert judgement.interval.high == math.inf


def test_the_rank_is_sharp_at_the_first_look() -> None:
    """With six pairs all have to lie beyond the threshold: one that does not leaves it open.

    A rank one too high would call both regressions or passes.
    """
    beyond = around(RULE.tau + 0.02, 5)
    assert judge({"w": [*beyond, RULE.tau + 0.001]}, RULE)["w"].outcome == "regression"
    assert judge({"w": [*beyond, RULE.tau - 0.001]}, RULE)["w"].outcome == "inconclusive"
    within = around(RULE.tau - 0.02, 5)
    assert judge({"w": [*within, RULE.tau - 0.001]}, RULE)["w"].outcome == "pass"
    assert judge({"w": [*within, RULE.tau + 0.001]}, RULE)["w"].outcome == "inconclusive"


@pytest.mark.parametrize("n", [12, 24])
@pytest.mark.parametrize("seed", range(10))
def test_later_looks_use_exactly_the_exact_rank(n: int, seed: int) -> None:
    """Proven iff the k-th smallest Walsh average lies beyond the threshold, k from enumeration."""
    rng = random.Random(seed)
    values = [rng.gauss(RULE.tau + 0.01, 0.02) for _ in range(n)]
    k = stats.signed_rank_rank(n, RULE.level)
    averages = stats.walsh_averages(values)
    assert judge({"w": values}, Rule(looks=(n,), alpha=RULE.level))["w"].outcome == (
        "regression"
        if averages[k - 1] > RULE.tau
        else "pass"
        if averages[-k] < RULE.tau
        else "inconclusive"
    )


def test_a_workload_once_decided_stays_decided() -> None:
    """Pairs after the look that decided are not looked at again."""
    values = [*around(0.0, 6), *around(drop(0.5), 18)]
    judgement = judge({"w": values}, RULE)["w"]
    assert (judgement.outcome, judgement.looked_at, judgement.interval.n) == ("pass", 6, 6)


def test_between_looks_nothing_is_decided() -> None:
    values = [*around(0.0, 5), RULE.tau + 0.01]
    assert judge({"w": values}, RULE)["w"].outcome == "inconclusive"
    eleven = [*values, *around(0.0, 5)]
    assert judge({"w": eleven}, RULE)["w"].outcome == "inconclusive"
    assert judge({"w": [*eleven, 0.0]}, RULE)["w"].outcome == "pass"


def test_the_cap_rule_is_off_unless_asked() -> None:
    """Certainly slower, about the threshold, not proven beyond it: red only with the cap rule."""
    values = around(RULE.tau + 0.001, 24, spread=0.03)
    once, once_with_cap = Rule(looks=(24,)), Rule(looks=(24,), cap_rule=True)
    assert judge({"w": values}, once)["w"].outcome == "inconclusive"
    capped = judge({"w": values}, once_with_cap)["w"]
    assert (capped.outcome, capped.by_cap) == ("regression", True)


def test_a_large_improvement_passes_and_is_marked() -> None:
    judgement = judge({"w": around(-0.2, 6)}, RULE)["w"]
    assert (judgement.outcome, judgement.faster) == ("pass", True)
    assert not judge({"w": around(0.0, 6)}, RULE)["w"].faster


@pytest.mark.parametrize(("workloads", "first"), [(1, 6), (2, 7), (3, 8), (4, 8), (16, 10)])
def test_several_workloads_need_more_pairs_at_the_first_look(workloads: int, first: int) -> None:
    assert RULE.looks_for(workloads)[0] == first
    assert stats.signed_rank_rank(first, RULE.level / workloads) >= 1
    assert stats.signed_rank_rank(first - 1, RULE.level / workloads) == 0


def test_regressions_are_tested_step_down() -> None:
    """Two regressions at eight pairs: each alone needs level / 3, the third is untouched."""
    slow, fine = around(drop(0.10), 8), around(0.0, 8)
    judgements = judge({"a": slow, "b": slow, "c": fine}, RULE)
    assert [judgements[name].outcome for name in "abc"] == ["regression", "regression", "pass"]
    assert judgements["a"].interval.confidence == pytest.approx(1 - 2 * RULE.level / 3)


def test_one_regression_among_many_needs_the_corrected_level() -> None:
    """What is proven alone at 12 pairs is not proven among ten workloads."""
    n, alone, among = 12, RULE.level, RULE.level / 10
    values = around(0.0, n, spread=0.02)
    averages = stats.walsh_averages(values)
    low_alone = averages[stats.signed_rank_rank(n, alone) - 1]
    low_among = averages[stats.signed_rank_rank(n, among) - 1]
    shifted = [v + RULE.tau - (low_alone + low_among) / 2 for v in values]
    others = {f"w{i}": around(0.0, n) for i in range(9)}
    rule = Rule(looks=(n,), alpha=RULE.level)
    assert judge({"w": shifted}, rule)["w"].outcome == "regression"
    assert judge({"w": shifted} | others, rule)["w"].outcome == "inconclusive"


def test_family_error_of_ten_unchanged_noisy_workloads() -> None:
    """At the threshold itself, the chance of any red among ten stays at alpha."""
    rng = random.Random(11)
    gates, red = 200, 0
    for _ in range(gates):
        family = {str(i): [rng.gauss(RULE.tau, 0.02) for _ in range(24)] for i in range(10)}
        red += any(j.outcome == "regression" for j in judge(family, RULE).values())
    assert red / gates <= RULE.alpha + 3 * math.sqrt(RULE.alpha / gates)


def test_drop_in_percent() -> None:
    assert drop_pct(drop(0.08)) == pytest.approx(8)
    assert drop_pct(math.log(0.5)) == pytest.approx(-100)
    assert drop_pct(math.inf) is None
