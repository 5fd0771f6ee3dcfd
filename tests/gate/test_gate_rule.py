"""The verdict's rule: error rates, looks, several workloads; one rank off fails here."""

from __future__ import annotations

import math
import random

import pytest

from advisor import stats
from advisor.gate.assumptions import Arms, why_doubted
from advisor.gate.rule import Rule, judge
from benchmarks.gate_error_rates import rates
from benchmarks.gate_worlds import ASYMMETRIC, SYMMETRIC

RULE = Rule()


def drop(share: float) -> float:
    return -math.log1p(-share)


def around(centre: float, n: int, spread: float = 0.004) -> list[float]:
    """n values, symmetric about `centre`, ascending."""
    return [centre + spread * (2 * i / (n - 1) - 1) for i in range(n)]


def mixed(centre: float, n: int, spread: float = 0.004, turn: int = 7) -> list[float]:
    """The same in no order that a test of independence minds, for n that `turn` does not divide."""
    ordered = around(centre, n, spread)
    return [ordered[(turn * i) % n] for i in range(n)]


def shares(world, drop_: float, seeds: int) -> dict[str, float]:
    return rates(world, drop_, seeds, RULE)


@pytest.mark.parametrize("world", SYMMETRIC, ids=lambda world: world.name)
def test_false_regressions_and_missed_drops_in_symmetric_worlds(world) -> None:
    """At no change none red, at an 8 % drop none green, at the threshold few of either: of sixty.

    `python -m benchmarks.gate_error_rates` plays thousands.
    """
    unchanged, at_threshold, dropped = (shares(world, d, 60) for d in (0.0, 0.05, 0.08))
    assert unchanged["regression"] == 0
    assert dropped["pass"] == 0
    assert at_threshold["regression"] <= 10
    assert at_threshold["pass"] <= 10


@pytest.mark.parametrize("world", ASYMMETRIC, ids=lambda world: world.name)
def test_false_regressions_and_missed_drops_where_the_arms_are_not_alike(world) -> None:
    """What the bounds do not assume is seen, or has no room: one of sixty wrong at most."""
    unchanged, dropped = (shares(world, d, 60) for d in (0.0, 0.08))
    assert unchanged["regression"] <= 2
    assert dropped["pass"] <= 2


def test_the_levels_of_each_side_add_up_to_alpha() -> None:
    for outcome in ("pass", "regression"):
        assert sum(RULE.level(n, outcome) for n in RULE.looks) == pytest.approx(RULE.alpha)


def test_a_quiet_runner_passes_at_five_pairs_and_is_red_at_twelve() -> None:
    """A pass costs ten processes; a regression waits for modes to show in twelve of each arm."""
    assert judge({"w": around(0.0, 5)}, RULE)["w"].outcome == "pass"
    slow = around(drop(0.12), 24)
    assert judge({"w": slow[:9]}, RULE)["w"].outcome == "inconclusive"
    assert judge({"w": slow}, RULE)["w"].looked_at == 12


def test_four_pairs_decide_nothing() -> None:
    for centre in (0.0, drop(0.5)):
        judgement = judge({"w": around(centre, 4)}, RULE)["w"]
        assert judgement.outcome == "inconclusive"
        assert judgement.interval.high == math.inf


def test_the_rank_is_sharp_at_the_first_look() -> None:
    """With five pairs all have to lie within the threshold: one that does not leaves it open."""
    within = around(RULE.tau - 0.03, 4)
    assert judge({"w": [*within, RULE.tau - 0.027]}, RULE)["w"].outcome == "pass"
    assert judge({"w": [*within, RULE.tau + 0.001]}, RULE)["w"].outcome == "inconclusive"


def test_an_early_verdict_needs_room() -> None:
    """Five pairs within the threshold, but as far apart as from it: they may be one side of a
    mode, or of a slow wave."""
    close = around(RULE.tau - 0.01, 5, spread=0.008)
    assert judge({"w": close}, RULE)["w"].outcome == "inconclusive"
    apart = Arms(base=[0.0, 0.0, -0.1, 0.0, 0.0], head=[0.0, 0.0, -0.1, 0.0, 0.0])
    level = [0.0] * 5
    assert judge({"w": level}, RULE)["w"].outcome == "pass"
    assert judge({"w": level}, RULE, {"w": apart})["w"].outcome == "inconclusive"


@pytest.mark.parametrize("n", [9, 12, 24])
@pytest.mark.parametrize("seed", range(10))
def test_bounds_use_exactly_the_exact_rank(n: int, seed: int) -> None:
    """Proven iff the k-th smallest Walsh average lies beyond the threshold, k from enumeration."""
    rng = random.Random(seed)
    values = [rng.gauss(RULE.tau + rng.choice((-0.01, 0.01)), 0.02) for _ in range(n)]
    k = stats.signed_rank_rank(n, 0.0167)
    averages = stats.walsh_averages(values)
    proven = averages[-k] < RULE.tau
    passed = judge({"w": values}, Rule(looks=(n,), alpha=0.0167))["w"].outcome == "pass"
    assert passed == (proven and why_doubted(values, None) is None)


def test_a_workload_once_decided_stays_decided() -> None:
    """Pairs after the look that decided are not looked at again."""
    values = [*around(0.0, 5), *around(drop(0.5), 19)]
    judgement = judge({"w": values}, RULE)["w"]
    assert (judgement.outcome, judgement.looked_at, judgement.interval.n) == ("pass", 5, 5)


def test_between_looks_nothing_is_decided() -> None:
    rng = random.Random(3)
    values = [rng.gauss(0, 0.004) for _ in range(12)]
    values[3] = RULE.tau + 0.01
    assert judge({"w": values[:11]}, RULE)["w"].outcome == "inconclusive"
    assert judge({"w": values}, RULE)["w"].looked_at == 12


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("times", [3.0, 1 / 3])
def test_one_stray_run_does_not_cost_all_the_pairs(place: int, times: float) -> None:
    """One run of the first six at a third of its rate, in either arm: a pass by 17 pairs."""
    arms = Arms(base=mixed(0.0, 24), head=mixed(0.0, 24, turn=5))
    head = list(arms.head)
    head[place] += math.log(times)
    values = [b - h for b, h in zip(arms.base, head, strict=True)]
    judgement = judge({"w": values}, RULE, {"w": Arms(base=arms.base, head=head)})["w"]
    assert judgement.outcome == "pass"
    assert judgement.looked_at is not None
    assert judgement.looked_at <= 17


def test_bounds_that_cannot_be_relied_on_decide_nothing_and_the_reason_is_kept() -> None:
    """The same pairs in an order that says nothing are red."""
    wave = [drop(0.08) + 0.02 * math.sin(math.pi * n / 4) for n in range(24)]
    doubted = judge({"w": wave}, RULE)["w"]
    assert doubted.outcome == "inconclusive"
    assert "consecutive pairs are alike" in (doubted.doubt or "")
    ordered = sorted(wave)
    assert judge({"w": [ordered[7 * n % 24] for n in range(24)]}, RULE)["w"].outcome == "regression"


def test_a_regression_holds_for_the_mean_of_the_pairs_too() -> None:
    """A base that is slow now and then does not lend its good runs to a verdict against head."""
    values = mixed(drop(0.08), 24)
    assert judge({"w": values}, RULE)["w"].outcome == "regression"
    for place in (3, 11, 19):
        values[place] = -0.6
    assert judge({"w": values}, RULE)["w"].outcome == "inconclusive"


def test_the_cap_rule_is_off_unless_asked() -> None:
    """Certainly slower, about the threshold, not proven beyond it: red only with the cap rule."""
    values = mixed(RULE.tau + 0.001, 24, spread=0.03)
    once, once_with_cap = Rule(looks=(24,)), Rule(looks=(24,), cap_rule=True)
    assert judge({"w": values}, once)["w"].outcome == "inconclusive"
    capped = judge({"w": values}, once_with_cap)["w"]
    assert (capped.outcome, capped.by_cap) == ("regression", True)


def test_a_large_improvement_passes_and_is_bounded() -> None:
    judgement = judge({"w": around(-0.2, 6)}, RULE)["w"]
    assert judgement.outcome == "pass"
    assert judgement.interval.high < -RULE.tau


def test_many_workloads_pass_as_early_as_one() -> None:
    """Passing needs no correction: the gate passes only if every workload does."""
    found = judge({str(n): around(0.0, 5) for n in range(20)}, RULE)
    assert {judgement.outcome for judgement in found.values()} == {"pass"}


def test_regressions_are_tested_step_down() -> None:
    """Two regressions at twelve pairs: each alone needs level / 3, the third is untouched."""
    slow, fine = around(drop(0.12), 12), around(0.0, 12)
    judgements = judge({"a": slow, "b": slow, "c": fine}, RULE)
    assert [judgements[name].outcome for name in "abc"] == ["regression", "regression", "pass"]
    level = RULE.level(12, "regression")
    assert judgements["a"].interval.confidence == pytest.approx(1 - 2 * level / 3)


def test_one_regression_among_many_needs_the_corrected_level() -> None:
    """What is proven alone is not proven among ten workloads."""
    n, alpha = 24, 0.01
    values = mixed(0.0, n, spread=0.02)
    averages = stats.walsh_averages(values)
    alone, among = (averages[stats.signed_rank_rank(n, level) - 1] for level in (alpha, alpha / 10))
    shifted = [v + RULE.tau - (alone + among) / 2 for v in values]
    others = {f"w{i}": around(0.0, n) for i in range(9)}
    rule = Rule(looks=(n,), alpha=alpha)
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
