"""Iterative samplers: how many forwards make a unit, and where one ends and the next begins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.analysis.progress import stop_point
from advisor.analysis.sampler_cycles import jumps
from advisor.analysis.window import find_window

if TYPE_CHECKING:
    from advisor.analysis.events import EventLog

from tests.analysis.logs import PLAN, call, detected, fetch, log_with, measured


def test_ranks_without_a_step_have_nothing_to_stop_at() -> None:
    assert stop_point([log_with()], now=1.0) is None


def sampler(log: EventLog, batches: int, forwards: int, *, batch: float, pause: float) -> float:
    now = 0.0
    for _ in range(batches):
        fetch(log, now, now + pause, 0, batch)
        now += pause
        for _ in range(forwards):
            call(log, now, now + 0.01, batch, graded=False)
            now += 0.01
    return now


def test_a_sampler_pays_for_its_pauses() -> None:
    """Stopped inside a batch, it knows the pause from the batch before."""
    log = log_with()
    sampler(log, 3, 100, batch=2, pause=0.5)
    found = measured(log, replace(PLAN, measure_s=0.4))
    assert found.series.forwards_per_unit == 100
    assert found.units_per_s() == pytest.approx(2 / 1.5, rel=0.01)


def test_a_sampler_waits_for_a_whole_batch() -> None:
    """Unless the forwards per unit are known."""
    log = log_with()
    sampler(log, 1, 400, batch=2, pause=0.1)
    assert find_window(log, detected(log), PLAN)[1]
    found = measured(log, replace(PLAN, forwards_per_unit=1000.0))
    assert found.units_per_s() == pytest.approx(2 / 10, rel=0.01)


def test_forwards_per_unit_do_not_depend_on_how_a_batch_is_split() -> None:
    """Four items one by one, or all at once with the guidance doubled: each has its own share."""
    split, doubled = log_with(), log_with()
    now = 0.0
    for _ in range(8):
        fetch(split, now, now, 0, 4.0)
        fetch(doubled, now, now, 0, 4.0)
        for number in range(80):
            call(split, now, now + 0.01, 1.0, graded=False)
            if number % 4 == 0:
                call(doubled, now, now + 0.01, 8.0, graded=False)
            now += 0.01
    assert measured(split).series.forwards_per_unit == 20
    assert measured(doubled).series.forwards_per_unit == 20


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([*range(9, -1, -1)] * 3, [10, 20]),
        ([v for v in range(9, -1, -1) for _ in (0, 1)] * 2, [20]),
        ([*range(20)], []),
        ([1.0] * 30, None),
        ([0, 1] * 20, None),
        ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3], None),
    ],
    ids=["timesteps", "guidance in two calls", "one way only", "constant", "flag", "noise"],
)
def test_a_number_that_jumps_back(values: list[float], found: list[int] | None) -> None:
    assert jumps([float(value) for value in values]) == found
