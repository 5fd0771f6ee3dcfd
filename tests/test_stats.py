"""Intervals against enumeration, scipy and simulation.

scipy is imported where it is asked: each process of a run of all tests reads this file, and it
takes longer than torch.
"""

import itertools
import math
import random
import statistics
from fractions import Fraction

import pytest

from advisor import stats

ALPHAS = (0.05, 0.05 / 3, 0.025, 0.01, 0.2)


def enumerated(n: int) -> list[int]:
    """W+ of every assignment of signs to the ranks 1 ... n."""
    return [
        sum(rank for rank, positive in zip(range(1, n + 1), signs, strict=True) if positive)
        for signs in itertools.product((False, True), repeat=n)
    ]


def test_ranks_are_those_of_the_enumeration() -> None:
    """k keeps the error at or below alpha and k + 1 does not: one rank off fails here."""
    for n in range(1, 13):
        sums = enumerated(n)
        counts = [sums.count(s) for s in range(max(sums) + 1)]
        assert list(stats.signed_rank_counts(n)) == counts
        for alpha in ALPHAS:
            k = stats.rank_in(stats.signed_rank_counts(n), alpha)[0]
            assert Fraction(sum(s < k for s in sums), len(sums)) <= alpha
            assert Fraction(sum(s < k + 1 for s in sums), len(sums)) > alpha


def test_fewest_pairs_is_the_first_number_that_can_decide() -> None:
    n = stats.FEWEST_PAIRS
    assert stats.rank_in(stats.signed_rank_counts(n), stats.ALPHA)[0] >= 1
    assert stats.rank_in(stats.signed_rank_counts(n - 1), stats.ALPHA)[0] == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_excludes_a_shift_exactly_when_scipy_rejects_it(seed) -> None:
    """The interval is the inversion of the exact one-sided test."""
    import scipy.stats

    rng = random.Random(seed)
    n, alpha = rng.choice([6, 9, 12, 24]), rng.choice(ALPHAS)
    values = [rng.gauss(0.03, 0.05) for _ in range(n)]
    interval = stats.walsh_interval(values, alpha)
    for shift in [rng.uniform(-0.1, 0.1) for _ in range(40)]:
        moved = [value - shift for value in values]
        above = scipy.stats.wilcoxon(moved, alternative="greater", mode="exact").pvalue
        below = scipy.stats.wilcoxon(moved, alternative="less", mode="exact").pvalue
        assert (interval.low > shift) == (above <= alpha)
        assert (interval.high < shift) == (below <= alpha)


def test_t_quantile_against_scipy() -> None:
    import scipy.stats

    probabilities = (0.5, 0.9, 0.975, 1 - 0.05 / 3, 0.9999)
    for degrees, probability in itertools.product((1, 2, 5, 23, 100), probabilities):
        expected = scipy.stats.t.ppf(probability, degrees)
        found = stats.t_quantile(probability, degrees)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("processes", [2, 5])
def test_noise_band_is_about_twice_the_spread_of_one_process(processes) -> None:
    rng = random.Random(processes)
    bands = [
        stats.noise_band([[100 * math.exp(rng.gauss(0, 0.02))] for _ in range(processes)])
        for _ in range(1500)
    ]
    assert statistics.fmean(b for b in bands if b is not None) == pytest.approx(0.04, rel=0.15)


def test_noise_band_does_not_believe_two_runs_that_agree_by_luck() -> None:
    """Windows inside the processes are a floor."""
    unsteady = [90.0, 110.0, 95.0, 105.0]
    assert stats.noise_band([unsteady, unsteady[::-1]]) == pytest.approx(
        math.expm1(2 * statistics.stdev(map(math.log, unsteady)) / 2)
    )
    assert stats.noise_band([unsteady] * 4) == 0.0


def test_windows_that_are_fast_and_slow_together_are_no_noise() -> None:
    """Prompts differ in length, and each run has them in the same order: 4.3x apart, and no noise.

    A call on such a program ended as too noisy to decide, of runs whose rates agreed within 0.2 %.
    """
    rng = random.Random(0)
    lengths = [math.exp(rng.gauss(0, 0.5)) for _ in range(8)]
    runs = [[rate * math.exp(rng.gauss(0, 0.01)) for rate in lengths] for _ in range(2)]
    assert (stats.noise_band(runs) or 1.0) < 0.02
    apart = [[math.exp(rng.gauss(0, 0.5)) for _ in range(8)] for _ in range(2)]
    assert (stats.noise_band(apart) or 0.0) > 0.2


def test_windows_of_equal_runs_seldom_agree_one_by_one_by_chance() -> None:
    rng = random.Random(1)
    pairs = [[[rng.gauss(0, 1) for _ in range(8)] for _ in range(2)] for _ in range(2000)]
    assert sum(stats.own_share(pair) < 1 for pair in pairs) / len(pairs) < 0.01


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_spread_that_was_seen_before_only_widens_the_bounds(rounds) -> None:
    """It is the least spread, and no degree of freedom."""
    rng = random.Random(rounds)
    for _ in range(200):
        arms = [[rng.gauss(0, 0.03) for _ in range(rounds)] for _ in range(2)]
        alone = stats.comparison_interval((arms[0], arms[1]))
        known = stats.comparison_interval((arms[0], arms[1]), sigma=0.03 * math.sqrt(2))
        assert known.low <= alone.low
        assert known.high >= alone.high


@pytest.mark.parametrize("rounds", [2, 3, 4, 5, 6, 7, 12])
def test_runs_before_the_rounds_only_widen_the_bounds(rounds) -> None:
    """A host that was slow before, or fast, makes no gain larger and none smaller."""
    rng = random.Random(rounds)
    for _ in range(200):
        arms = [[rng.gauss(0, 0.03) for _ in range(rounds)] for _ in range(2)]
        before = [rng.gauss(rng.choice((-0.3, 0.0, 0.3)), 0.03) for _ in range(3)]
        alone = stats.comparison_interval((arms[0], arms[1]))
        known = stats.comparison_interval((arms[0], arms[1]), before=before)
        assert known.low <= alone.low
        assert known.high >= alone.high


def test_few_runs_that_agree_by_luck_are_bounded_by_the_farthest() -> None:
    """Each arm scatters by 10 % and their rounds do not: the runs themselves still count."""
    reference, candidate = [0.0, 0.05, 0.10], [0.2, 0.25, 0.30]
    found = stats.comparison_interval((reference, candidate))
    assert found.low <= min(candidate) - max(reference)
    assert found.high >= max(candidate) - min(reference)


def test_two_rounds_cannot_tell_a_gain_from_the_modes_of_a_host() -> None:
    """Four runs that agree wholly, 1.5 apart, may be two fast ones beside two slow ones."""
    apart = math.log(1.5)
    two = stats.comparison_interval(([0.0] * 2, [apart] * 2))
    three = stats.comparison_interval(([0.0] * 3, [apart] * 3))
    assert two.low < 0.0
    assert three.low == pytest.approx(apart)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_welch_against_scipy(ratio) -> None:
    """Between whole degrees of freedom at most 2 % farther, and never nearer."""
    import scipy.stats

    rng = random.Random(ratio)
    for sizes in itertools.product((2, 3, 5, 9), repeat=2):
        one, other = (
            [rng.gauss(0, s) for _ in range(n)] for n, s in zip(sizes, (1, ratio), strict=True)
        )
        found = stats.welch_interval(one, other, 0.025)
        exact = scipy.stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
        assert found.low <= exact.low + 1e-9
        assert found.high - found.estimate <= 1.25 * (exact.high - found.estimate)
