"""What speaks against independent, symmetric pairs is seen; what is ordinary is left alone."""

from __future__ import annotations

import bisect
import itertools
import math
import random
import statistics

import pytest

from advisor.gate.assumptions import Arms, has_room, likeness, trend, why_doubted

SEEDS = 100


def drawn(seed: int, n: int = 24, sigma: float = 0.01) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, sigma) for _ in range(n)]


def doubted(make) -> float:
    """Share of gates that are doubted."""
    found = 0
    for seed in range(SEEDS):
        base, head = make(seed)
        differences = [b - h for b, h in zip(base, head, strict=True)]
        found += why_doubted(differences, Arms(base=base, head=head)) is not None
    return found / SEEDS


def test_equal_arms_are_seldom_doubted() -> None:
    assert doubted(lambda seed: (drawn(2 * seed), drawn(2 * seed + 1))) <= 0.10


def test_a_few_stray_runs_are_no_mode() -> None:
    """One in twenty stalls, in either arm."""

    def stalling(seed: int) -> list[float]:
        rng = random.Random(f"stall {seed}")
        return [value - 0.35 * (rng.random() < 0.05) for value in drawn(seed)]

    assert doubted(lambda seed: (stalling(2 * seed), stalling(2 * seed + 1))) <= 0.15


def test_pairs_that_follow_each_other_are_seen() -> None:
    def wave(seed: int) -> tuple[list[float], list[float]]:
        rng = random.Random(seed)
        head, at = [], rng.gauss(0, 0.04)
        for value in drawn(seed + 5000):
            head.append(value + at)
            at = 0.85 * at + rng.gauss(0, 0.04 * math.sqrt(1 - 0.85**2))
        return drawn(seed), head

    assert doubted(wave) >= 0.85


def test_a_wave_is_seen_by_its_neighbours_alone() -> None:
    """It runs through both arms alike, so that neither scatters more, and comes back, so that
    nothing drifts."""

    def waving(seed: int) -> tuple[list[float], list[float]]:
        start = random.Random(f"wave {seed}").uniform(0, 2 * math.pi)
        wave = [0.015 * math.sin(start + math.pi * n / 4) for n in range(24)]
        base, head = drawn(2 * seed), drawn(2 * seed + 1)
        return (
            [value + w for value, w in zip(base, wave, strict=True)],
            [value - w for value, w in zip(head, wave, strict=True)],
        )

    assert doubted(waving) >= 0.8


def test_a_drift_that_neighbours_hardly_show_is_seen() -> None:
    def drifting(seed: int) -> tuple[list[float], list[float]]:
        return drawn(seed), [v - 0.0018 * n for n, v in enumerate(drawn(seed + 5000))]

    assert doubted(drifting) >= 0.85


def test_a_drift_of_one_arm_is_seen() -> None:
    def drifting(seed: int) -> tuple[list[float], list[float]]:
        return drawn(seed), [v - 0.003 * n for n, v in enumerate(drawn(seed + 5000))]

    assert doubted(drifting) >= 0.95


def test_an_arm_that_scatters_more_is_seen() -> None:
    assert doubted(lambda seed: (drawn(seed), drawn(seed + 5000, sigma=0.05))) >= 0.9


def test_a_slow_mode_of_one_arm_is_seen_and_one_of_both_is_not_minded() -> None:
    def slow(seed: int, share: float) -> list[float]:
        rng = random.Random(f"slow {seed}")
        return [v - 0.12 * (rng.random() < share) for v in drawn(seed, sigma=0.005)]

    assert doubted(lambda seed: (slow(seed, 0.6), drawn(seed + 5000, sigma=0.005))) >= 0.95
    assert doubted(lambda seed: (slow(2 * seed, 0.4), slow(2 * seed + 1, 0.4))) <= 0.3


def test_a_drift_of_both_arms_is_not_minded() -> None:
    """Pairs cancel it."""

    def both(seed: int) -> tuple[list[float], list[float]]:
        base, head = drawn(2 * seed), drawn(2 * seed + 1)
        return tuple([v - 0.002 * n for n, v in enumerate(arm)] for arm in (base, head))  # type: ignore[return-value]

    assert doubted(both) <= 0.15


@pytest.mark.parametrize("seed", range(20))
def test_the_trend_is_kendalls(seed: int) -> None:
    """All pairs that rise, less those that fall: counted by where each value would be inserted."""
    values, seen, falls = drawn(seed, 15), [], 0
    for value in values:
        place = bisect.bisect(seen, value)
        falls += len(seen) - place
        seen.insert(place, value)
    assert trend(values) * math.sqrt(15 * 14 * 35 / 18) == pytest.approx(15 * 14 / 2 - 2 * falls)


def test_over_all_orders_the_trend_has_a_standard_deviation_of_one() -> None:
    found = [trend(order) for order in itertools.permutations(range(6))]
    assert statistics.fmean(found) == pytest.approx(0)
    assert statistics.pstdev(found) == pytest.approx(1)


def test_neighbours_in_order_are_alike_and_alternating_ones_are_not() -> None:
    assert likeness([float(n) for n in range(12)]) > 3
    assert likeness([(-1.0) ** n * (1 + n / 100) for n in range(12)]) < -2
    assert likeness([1.0] * 12) == 0


def test_room_is_more_distance_than_anything_lies_apart() -> None:
    values = [0.0, 0.001, 0.002]
    assert has_room(values, 0.01, None)
    assert not has_room(values, 0.0035, None)
    assert not has_room([-0.01, 0.01], 0.0, None)
    assert not has_room(values, 0.01, Arms(base=[0.0, 0.05, 0.0], head=[0.0, 0.05, 0.0]))
