"""What calibration concludes from equal runs, and that gates then follow it."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from gate_engine import in_process
from gate_examples import pair, program, program_of, rate, run

from advisor.gate import modes as ways
from advisor.gate.calibrate import calibrate, keep, kept_statistic
from advisor.gate.noise import modes, spread_between_processes
from advisor.gate.records import Inputs

if TYPE_CHECKING:
    from advisor.gate.entries import RunEntry


def noisy(sigma: float, n: int = 40, seed: int = 5) -> list[float]:
    rng = random.Random(seed)
    return [100 * math.exp(rng.gauss(0, sigma)) for _ in range(n)]


def found(base: list[float], head: list[float], **inputs: float):
    entry = calibrate(program_of(base, head), Inputs(**inputs))
    assert entry is not None
    return entry


def test_a_quiet_runner_needs_the_fewest_pairs() -> None:
    entry = found(noisy(0.003, seed=1), noisy(0.003, seed=2))
    assert entry.pairs_needed == 5
    assert entry.noise_pct == pytest.approx(0.3, rel=0.3)
    assert entry.placebo == "pass"
    assert entry.threshold_pct == 1


def test_a_noisy_runner_is_told_which_threshold_it_supports() -> None:
    entry = found(noisy(0.08, seed=1), noisy(0.08, seed=2))
    assert entry.threshold_pct is not None
    assert entry.threshold_pct > 5
    assert entry.pairs_needed is None


def test_no_regression_is_promised_before_one_can_fall() -> None:
    """What turns red nine times in ten is told for the pairs at which it can, and falls."""
    entry = found(noisy(0.01, seed=1), noisy(0.01, seed=2))
    assert list(entry.provable_pct) == [12, 17, 24]
    assert list(entry.provable_pct.values()) == sorted(entry.provable_pct.values(), reverse=True)
    assert entry.provable_pct[24] > 5


def test_two_groups_of_runs_are_found() -> None:
    slow_half = [100 * (1 if n % 2 else 0.89) * (1 + n / 10_000) for n in range(20)]
    entry = found(slow_half, slow_half[::-1])
    assert entry.two_groups_pct == pytest.approx(11, abs=0.5)


def test_one_pair_says_nothing() -> None:
    assert calibrate(program_of([100.0], [100.0]), Inputs()) is None


def stalling(sigma: float) -> list[tuple[float, float]]:
    """Mean and median of runs: the mean carries stalls that the median does not see."""
    means, medians = noisy(sigma), noisy(0.005, seed=9)
    return list(zip(means, medians, strict=True))


@pytest.mark.parametrize(("sigma", "statistic"), [(0.05, "median"), (0.006, "mean")])
def test_the_median_is_preferred_only_where_it_is_clearly_truer(sigma, statistic: str) -> None:
    def ran(arm, mean: float, median: float) -> RunEntry:
        rates = {"train": rate(mean, median=median, fast=200.0)}
        return run(arm).model_copy(update={"rates": rates})

    drawn = stalling(sigma)
    pairs = [pair(n, ran("base", *drawn[2 * n]), ran("head", *drawn[2 * n + 1])) for n in range(20)]
    entry = calibrate(program(pairs), Inputs())
    assert entry is not None
    assert entry.statistic == statistic


def test_what_calibration_found_is_kept_for_its_host_and_program_alone(tmp_path) -> None:
    path = tmp_path / "cache" / "c.json"
    assert kept_statistic(path, "host", "d") == "mean"
    keep(path, "host", "d", "median")
    keep(path, "host", "other", "mean")
    assert kept_statistic(path, "host", "d") == "median"
    assert kept_statistic(path, "elsewhere", "d") == "mean"
    path.write_text("{")
    assert kept_statistic(path, "host", "d") == "mean"


@pytest.mark.parametrize("mode", ["calibrate", "history"])
def test_a_crash_in_either_place_is_heads_own(repo, tmp_path, monkeypatch, mode: str) -> None:
    """There is no base in these modes: a run that crashes in its place is no missing baseline."""
    repo.commit({"rate": "100", "breaks": "2"})
    gate = in_process(repo.path, tmp_path, monkeypatch, ways)
    record = gate(ways.MODES[mode], "--mode", mode, "--history", str(repo.out / "history.json"))
    assert [(run.arm, bool(run.problem)) for run in record.programs[0].warm_ups] == [
        ("head", False), ("base", True),
    ]  # fmt: skip
    assert record.verdict == "error"
    assert not (repo.out / "history.json").exists()


def test_drift_and_slots_are_no_noise() -> None:
    """Runs that get slower step by step, and second places that are slower than first ones."""
    drift = [-0.001 * n for n in range(20)]
    assert spread_between_processes([drift, [v - 0.05 for v in drift]]) == pytest.approx(
        0.001 / math.sqrt(2)
    )
    assert spread_between_processes([[0.0], []]) is None


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_scatter_is_not_taken_for_two_groups(seed: int) -> None:
    assert modes([math.log(rate_) for rate_ in noisy(0.03, 24, seed)]) is None
