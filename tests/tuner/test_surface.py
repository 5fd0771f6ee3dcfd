"""The fit of rate over batch and workers, on rates that are known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from advisor.tuner.throughput_model import Point, ThroughputModel
from tests.support.simulator.search import formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH_S, UNIT_S, LOAD_S = 0.02, 0.001, 0.003
LOADER = tuple((workers, max(1, workers) / LOAD_S) for workers in (0, 1, 2, 8))


def rate(batch: int, workers: int) -> float:
    step_s, load_s = LAUNCH_S + UNIT_S * batch, LOAD_S * batch / max(1, workers)
    return batch / (max(step_s, load_s) if workers else step_s + load_s)


def point(batch: int, workers: int, factor: float = 1.0) -> Point:
    step_s = LAUNCH_S + UNIT_S * batch
    told = rate(batch, workers) * factor
    return Point(
        batch=batch,
        workers=workers,
        rate=told,
        wait_share=1 - step_s * rate(batch, workers) / batch,
    )


@pytest.mark.parametrize("cell", [(16, 0), (64, 2), (256, 8), (4, 4)])
def test_two_batches_tell_the_others(cell: tuple[int, int]) -> None:
    """Launch and compute are known from two batches, the loader from what was measured alone."""
    surface = ThroughputModel((point(1, 0), point(1, 0), point(32, 8)), LOADER, 0.02)
    told = surface.at(*cell)
    assert abs(told.log_rate - math.log(rate(*cell))) < 2 * told.sd


def test_one_run_that_went_wrong_does_not_bend_the_fit() -> None:
    """Student's tails: the other four say where it should have been."""
    good = tuple(point(batch, 8) for batch in (1, 4, 16, 64))
    surface = ThroughputModel((*good, point(32, 8, factor=0.5)), LOADER, 0.02)
    assert abs(surface.at(128, 8).log_rate - math.log(rate(128, 8))) < 0.1


def test_between_a_batch_and_a_slower_larger_one_more_may_be_gained() -> None:
    """Where caches overflow the best lies between them (rates of a text tagger on two cores); by a
    launch and a compute alone it would be the largest."""
    rates = {1: 1180.0, 8: 4302.0, 64: 3846.0}
    surface = ThroughputModel(
        tuple(Point(batch=b, workers=0, rate=r, wait_share=0.0) for b, r in rates.items()), (), 0.05
    )
    best = max(surface.at(batch, 0, ran=True).log_rate for batch in rates)
    gains = {batch: surface.at(batch, 0).improvement(best) for batch in (2, 16, 32, 128, 512)}
    assert max(gains, key=lambda batch: gains[batch]) in {16, 32}
    assert max(gains.values()) > 0.03
    assert gains[512] < gains[128] < 0.01


def test_a_run_that_collapsed_is_run_again_before_it_is_believed(tmp_path: Path) -> None:
    """The first candidate ran at a tenth of its rate: the second draw is what counts."""
    slow = {2}
    engine = on_formula(
        load_s=1e-6, slowed=10.0, held=lambda process, _: 1.0 if process in slow else 0.0
    )
    untold = formula_search(tmp_path, engine, "batch_size: 1\n", workload={"phase": "test"})
    assert untold.values["batch_size"] > 16
    assert len(untold.asked("search")) <= 8
