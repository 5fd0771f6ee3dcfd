"""Rounds to a gain: its interval, its verdict, and which rounds count."""

import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from advisor import stats
from advisor.executor.comparison import Comparison, chained
from advisor.executor.rounds import Turns, interleaved
from advisor.model import Disturbance
from advisor.objective import THROUGHPUT
from tests.executor.made import compared, comparison
from tests.runs import a_run

SEEDS = 500
SIGMA = 0.05 * math.sqrt(2)
"""Of a log ratio, where a process is off by 5 %."""


def drawn(
    rng: random.Random, rounds: int, gain: float, noise: float = 0.05
) -> list[tuple[float, float]]:
    """Rounds of two arms that lie `gain` apart."""
    return [
        (rng.lognormvariate(0, noise), gain * rng.lognormvariate(0, noise)) for _ in range(rounds)
    ]


def host_noise(rng: random.Random, kind: str, runs: int) -> list[float]:
    """Log rates of equal processes, one after the other, on three kinds of hosts."""
    found, slow, last = [], rng.random() < 0.5, rng.gauss(0, 0.07)
    for _ in range(runs):
        found.append(math.log(0.6) * slow + rng.gauss(0, 0.03) if kind == "two speeds" else last)
        slow ^= rng.random() < 0.15
        kept = 0.5 if kind == "autocorrelated" else 0.0
        last = kept * last + math.sqrt(1 - kept**2) * rng.gauss(0, 0.07)
    return found


def world(rng: random.Random, kind: str, rounds: int, gain: float) -> Comparison:
    """Three baselines, a search of six processes, and rounds in changing order."""
    rates = [math.exp(each) for each in host_noise(rng, kind, 9 + 2 * rounds)]
    pairs = [(rates[n], rates[n + 1])[:: 1 if n % 4 == 1 else -1] for n in range(9, len(rates), 2)]
    sigma = math.log1p(stats.noise_band([[rate] for rate in rates[:3]]) or 0.0) / math.sqrt(2)
    both = [(before, gain * after) for before, after in pairs]
    return compared(both, sigma=sigma, outside=rates[:3])


@pytest.mark.parametrize("kind", ["independent", "autocorrelated", "two speeds"])
@pytest.mark.parametrize("rounds", [2, 5, 6])
def test_equal_arms_are_hardly_ever_called_different(rounds, kind) -> None:
    """A bound is wrong in 2.5 % at most; the rest is the accuracy of so many worlds."""
    rng = random.Random(f"{rounds}{kind}")
    wrong = covered = 0
    for _ in range(SEEDS):
        found = world(rng, kind, rounds, 1.0).interval(THROUGHPUT)
        wrong += found.low > 1
        covered += found.low <= 1 <= found.high
    assert wrong <= 0.042 * SEEDS
    assert covered >= 0.92 * SEEDS


def test_a_gain_that_the_probe_itself_made_is_not_proven() -> None:
    """Hooks in tiny steps slow the first variant alone: its true gain may be so much less."""
    pairs = [(1.0, 1.1), (1.0, 1.11), (1.0, 1.09), (1.0, 1.1)]
    plain, slowed = (compared(pairs, probe_share=share) for share in (0.0, 0.05))
    assert plain.proven(THROUGHPUT, 0.03)
    assert not slowed.proven(THROUGHPUT, 0.03)
    low, high = (each.interval(THROUGHPUT) for each in (slowed, plain))
    assert low.low == pytest.approx(0.9 * high.low)
    assert low.estimate == high.estimate
    assert low.high == high.high


@pytest.mark.parametrize(("rounds", "gain", "share"), [(3, 1.5, 0.75), (8, 1.17, 0.65)])
def test_a_true_gain_is_cheap_to_prove(rounds, gain, share) -> None:
    """1.5x in three rounds; 1.17x beside a noise of 7 % in eight."""
    rng = random.Random(rounds)
    worlds = [world(rng, "independent", rounds, gain) for _ in range(SEEDS // 4)]
    proven = sum(each.proven(THROUGHPUT, 0.03) for each in worlds)
    assert proven >= share * len(worlds)


def test_baselines_before_the_rounds_make_no_gain() -> None:
    """They were slow for a reason that is gone: the rounds alone could prove it, or none."""
    rates = [(1.0, 1.05), (1.0, 1.07), (1.01, 1.06), (1.0, 1.05)]
    alone = compared(rates).interval(THROUGHPUT)
    slow = compared(rates, outside=[0.6, 0.61, 0.62]).interval(THROUGHPUT)
    fast = compared(rates, outside=[1.2, 1.21, 1.22]).interval(THROUGHPUT)
    assert slow.low <= alone.low
    assert fast.low < alone.low
    assert slow.high > alone.high


@pytest.mark.parametrize(
    ("rates", "likely"),
    [
        ([(1.0, 1.02), (1.0, 1.021), (1.0, 1.019), (1.0, 1.02)], True),
        ([(1.0, 1.02), (1.3, 1.5), (1.0, 1.3), (1.2, 1.25)], True),
        ([(1.0, 1.02), (1.3, 1.2), (1.0, 1.3), (1.2, 1.25)], False),
        ([(1.0, 0.8), (1.0, 0.81), (1.0, 0.79), (1.0, 0.8)], False),
        ([(1.0, 1.3), (1.0, 1.31), (1.0, 1.29), (1.0, 1.3)], False),
    ],
)
def test_a_gain_below_the_smallest_or_won_in_every_round_is_likely(rates, likely) -> None:
    assert compared(rates).is_likely(THROUGHPUT, 0.03) is likely


def test_the_estimate_lies_inside_its_bounds() -> None:
    """Bounds of ranks are of another sample than the medians of the rounds are."""
    rates = [(0.976, 2.1), (1.033, 2.337), (0.986, 2.097), (0.98, 2.335), (1.124, 2.347)]
    found = compared(rates, sigma=0.02, outside=[0.981, 1.034]).interval(THROUGHPUT)
    assert found.low < found.estimate < found.high


def test_a_baseline_at_another_speed_widens_the_interval_and_is_mentioned() -> None:
    """0.25 before the rounds and 0.16 in them: the 2.2x over the former lies inside."""
    inside = [(0.140, 0.56), (0.187, 0.55), (0.168, 0.57), (0.16, 0.54), (0.15, 0.56), (0.17, 0.55)]
    found = compared(inside, outside=[0.252, 0.254])
    interval = found.interval(THROUGHPUT)
    assert interval.low <= statistics.median(after for _, after in inside) / 0.253
    note = found.drift_note(THROUGHPUT, "tiles/s")
    assert "0.253 tiles/s" in note
    assert "0.164 tiles/s" in note
    assert found.proven(THROUGHPUT, 0.03)
    alike_outside = compared(inside, outside=[0.15, 0.17])
    assert alike_outside.drift_note(THROUGHPUT, "tiles/s") is None


def test_two_steps_together_hold_their_product() -> None:
    """2x and then 1.5x, each with its own rounds: 3x lies inside in at least 92 of a hundred."""
    rng = random.Random(16)
    held = 0
    for _ in range(SEEDS // 4):
        steps = [compared(drawn(rng, n, gain), sigma=SIGMA) for n, gain in ((10, 2.0), (6, 1.5))]
        found = chained(steps, THROUGHPUT)
        held += found.low <= 3.0 <= found.high
    assert held >= 0.92 * SEEDS // 4


def test_on_a_machine_that_stays_busy_rounds_disturbed_alike_stand_in() -> None:
    """1.0 and 1.1 CPUs are alike, 0.1 and 1.0 are not: that arm alone was slowed."""
    held = {1: (1.0, 1.1), 2: (0.1, 1.0), 3: (1.0, 0.9)}
    found = compared([(1.0, 2.0), (1.0, 0.5), (1.0, 2.0)], others=held)
    assert [each.number for each in found.counted] == [1, 3]
    assert found.used_contended_rounds
    assert found.proven(THROUGHPUT, 0.03)


def waiting(own_cpus: float | None, **load: Any) -> Disturbance:
    """What a program of several threads tells beside others, where one of a single thread does
    not wait."""
    return Disturbance(disturbed=True, own_cpus=own_cpus, **{"others_cpus": 0.6, **load})


def disturbed_original(load: Disturbance, after: float = 40.0) -> Comparison:
    """Six rounds in which others slow the original alone, at about 25."""
    before = [a_run(units_per_s=rate, disturbance=load) for rate in (25, 25.2, 24.9) * 2]
    quiet = Disturbance(disturbed=False, own_cpus=1.0, others_cpus=1.0)
    return comparison(before, [a_run(units_per_s=after, disturbance=quiet)] * 6)


def test_an_original_that_others_slow_in_each_round_is_bounded_by_what_they_took() -> None:
    """It had 1.4 CPUs and others 0.6: with all of them it would have run at 36, and not at 40."""
    found = disturbed_original(waiting(1.4))
    interval = found.interval(THROUGHPUT)
    assert len(found.counted) == 6
    assert 1.08 < interval.low < 1.13
    assert interval.high == math.inf
    assert found.proven(THROUGHPUT, 0.03)
    assert not disturbed_original(waiting(1.4), after=36.0).proven(THROUGHPUT, 0.03)


@pytest.mark.parametrize(
    "load",
    [
        waiting(None),
        waiting(1.4, others_cpus=None),
        waiting(1.4, steal_share=0.2),
        waiting(1.4, foreign_gpu_pids=1),
        waiting(1.4, clocks_held=(("power cap", 0.5),)),
    ],
)
def test_what_others_took_is_unknown_without_their_cpu_time(load) -> None:
    """A card's other programs, held clocks and a hypervisor have no such bound."""
    assert disturbed_original(load).interval(THROUGHPUT) is None


def test_a_run_whose_load_is_unknown_is_no_quiet_one() -> None:
    """Where the machine tells of other runs; where it tells of none, there is nothing better."""
    quiet, unknown = Disturbance(disturbed=False, others_cpus=0.0), Disturbance()
    slow = [a_run(units_per_s=0.5, disturbance=unknown)] * 3
    before = [*(a_run(disturbance=quiet) for _ in range(3)), *slow]
    after = [a_run(units_per_s=1.1, disturbance=quiet)] * 6
    found = comparison(before, after)
    assert [each.number for each in found.counted] == [1, 2, 3]
    assert [found.contended(each) for each in found.rounds] == [None] * 3 + ["before"] * 3
    blind = comparison(slow, [a_run(disturbance=unknown)] * 3)
    assert [each.number for each in blind.counted] == [1, 2, 3]


def beside_others(rng: random.Random, gain: float, busy: tuple[float, float]) -> Comparison:
    """Eight rounds of which four are planned; others come to an arm by a share and slow it."""
    rates, others = [], {}
    for number, (before, after) in enumerate(drawn(rng, 8, gain), 1):
        loads = [rng.choice([0.3, 1.0, 2.0]) if rng.random() < share else 0.0 for share in busy]
        others[number] = (loads[0], loads[1])
        rates.append((before / (1 + loads[0] / 3), after / (1 + loads[1] / 3)))
    outside = [before for before, _ in drawn(rng, 2, 1.0)]
    return compared(rates, others=others, rounds=4, sigma=SIGMA, outside=outside)


@pytest.mark.parametrize(
    ("busy", "share"), [((0.3, 0.3), 0.6), ((0.6, 0.6), 0.6), ((0.3, 0.8), 0.6), ((0.8, 0.3), 0.3)]
)
def test_others_can_hide_a_gain_and_never_make_one(busy, share) -> None:
    """Both bounds are wrong in 2.5 % at most, and a double speed is mostly proven.

    An original that others slow in four rounds of five leaves too few runs of itself.
    """
    rng = random.Random(1)
    same = [beside_others(rng, 1.0, busy).interval(THROUGHPUT) for _ in range(SEEDS)]
    assert sum(each is not None and each.low > 1 for each in same) <= 0.03 * SEEDS
    assert sum(each is not None and each.high < 1 for each in same) <= 0.03 * SEEDS
    twice = [beside_others(rng, 2.0, busy).proven(THROUGHPUT, 0.03) for _ in range(SEEDS // 4)]
    assert sum(twice) >= share * SEEDS // 4


def test_the_order_flips_with_every_round_that_counts() -> None:
    """A disturbed round is run again whole, in its own order."""
    asked: list[str] = []

    def run(rounds: Sequence[Turns]) -> list[dict[str, str]]:
        asked.extend(f"{number}{arm}" for arm, number in rounds[0])
        return [{arm: arm for arm, _ in rounds[0]}]

    rounds = interleaved(
        "ab", run, why_repeat=lambda _: "somebody" if asked[-1].startswith("2") else None
    )
    found = list(itertools.islice(rounds, 4))
    assert asked == ["1a", "1b", "2b", "2a", "3b", "3a", "4a", "4b"]
    assert [each.contended for each in found] == [None, "somebody", None, None]


def test_a_round_that_broke_is_the_last() -> None:
    """It may lack the other arm."""
    rounds = list(
        interleaved(
            "ab", lambda _: [{"a": "a"}], why_repeat=lambda _: None, failed=lambda r: r == "a"
        )
    )
    assert len(rounds) == 1
    assert rounds[0].failed
    assert set(rounds[0].runs) == {"a"}


def test_rounds_at_once_begin_with_either_arm() -> None:
    """Each has both arms, and one that does not count is run again in its own order."""
    asked: list[list[str]] = []

    def run(rounds: Sequence[Turns]) -> list[dict[str, str]]:
        asked.append(["".join(f"{number}{arm}" for arm, number in each) for each in rounds])
        return [{arm: f"{number}{arm}" for arm, number in each} for each in rounds]

    def contended(runs: Mapping[str, str]) -> str | None:
        return "somebody" if runs["a"] == "2a" else None

    many = itertools.chain([3], itertools.repeat(2))
    rounds = interleaved("ab", run, why_repeat=contended, at_once=lambda: next(many))
    found = list(itertools.islice(rounds, 5))
    assert asked == [["1a1b", "2b2a", "3a3b"], ["4b4a", "5b5a"]]
    assert [each.contended for each in found] == [None, "somebody", None, None, None]


def test_rounds_that_differ_wildly_bound_nothing() -> None:
    """Two rounds, one of which a busy machine slowed a thousand times: no number is too large."""
    found = compared([(1.0, 1000.0), (1000.0, 1.0)], sigma=300.0)
    interval = found.interval(THROUGHPUT)
    assert interval is not None
    assert 0 < interval.low < 1e-3
    assert interval.high > 1e3
