"""Which part of a run is measured: after its warm-up, whole epochs, long enough, and in parts."""

from __future__ import annotations

import pytest
from advisor.probe.log import EXHAUSTED

from advisor.probe import steps, window
from tests.probe.logs import PLAN, log_with, measured, train


def test_a_full_queue_is_not_taken_for_speed() -> None:
    """The first workers x prefetch batches came from a queue filled while the program started."""
    log = log_with(workers=2, prefetch=8)
    now = train(log, 18, load=0.001, work=0.002)
    train(log, 200, start=now, load=0.018, work=0.002)
    found = measured(log, {"measure_s": 1.0, "min_steps": 10})
    assert found.units_per_s() == pytest.approx(4 / 0.02, rel=0.01)
    assert found.count % 2 == 0


def test_slow_first_steps_are_warm_up() -> None:
    """Compilation and the like are detected, not assumed."""
    log = log_with()
    now = train(log, 15, work=0.2)
    train(log, 200, start=now)
    assert measured(log).units_per_s() == pytest.approx(400.0)


def test_short_epochs_are_measured_whole() -> None:
    """The pause between two epochs is paid for by each."""
    log, now = log_with(), 0.0
    for _ in range(12):
        now = train(log, 20, start=now)
        log.nexts.append((now, now, 0, EXHAUSTED, True))
        now += 0.1
    found = measured(log)
    assert found.units_per_s() == pytest.approx(20 * 4 / (20 * 0.01 + 0.1), rel=0.001)


def test_long_epochs_of_few_steps_do_not_run_to_the_end() -> None:
    """No epoch holds the steps a window wants, so whole epochs make it up."""
    log, now = log_with(), 0.0
    for _ in range(5):
        now = train(log, 8, start=now, work=0.09, load=0.01)
        log.nexts.append((now, now, 0, EXHAUSTED, True))
        now += 0.2
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    found, need = window.find(log, ledger, PLAN)
    assert need is None
    assert found is not None
    assert found.units_per_s() == pytest.approx(8 * 4 / (8 * 0.1 + 0.2), rel=0.001)


def test_a_few_steps_are_enough_where_each_takes_long() -> None:
    log = log_with()
    train(log, 9, work=1.9, load=0.1)
    assert measured(log).units_per_s() == pytest.approx(2.0)


def test_a_window_that_is_not_full_says_when_to_look_again() -> None:
    """Near the end, neither much too early nor too late."""
    log = log_with()
    train(log, 30)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    _, need = window.find(log, ledger, PLAN)
    assert need is not None
    assert 0.1 < need.seconds < 0.5


def test_a_short_program_uses_what_there_is() -> None:
    """And says that its warm-up was cut short."""
    log = log_with(workers=4, prefetch=4)
    train(log, 12)
    found = measured(log, {"measure_s": 3.0, "min_steps": 20}, ended=True)
    assert found.units_per_s() == pytest.approx(400.0)
    assert "ended by itself" in found.notes[0]


def test_parts_cover_the_window_and_count_every_unit() -> None:
    """Of a tenth of a second and more, one after another, without a gap."""
    log = log_with()
    train(log, 200)
    found = measured(log, {"measure_s": 1.0, "min_steps": 10})
    parts = found.parts(1)
    assert (parts[0][0], parts[-1][1]) == (found.start, found.end)
    assert [a[1] for a in parts[:-1]] == [b[0] for b in parts[1:]]
    assert sum(units for _, _, units, _ in parts) == 4.0 * found.count
    assert all(end - start >= 0.1 for start, end, _, _ in parts)
    assert len(parts) >= 0.8 * found.seconds / window.PART_S


def test_parts_are_whole_cycles_and_not_too_many() -> None:
    """Workers hand over their batches in bursts; a long window has longer parts."""
    log = log_with()
    train(log, 4000)
    found = measured(log, {"measure_s": 38.0, "min_steps": 10})
    parts = found.parts(3)
    assert len(parts) <= window.PARTS + 1
    assert all(round(units / 4.0) % 3 == 0 for _, _, units, _ in parts[:-1])
    assert found.parts(10_000) == [(found.start, found.end, 4.0 * found.count, 0)]


def test_parts_tell_in_which_of_them_an_epoch_begins() -> None:
    """Its pause weighs as much as it does in the whole window."""
    log = log_with()
    now = 0.0
    for _ in range(6):
        now = train(log, 30, start=now)
        log.nexts.append((now, now + 0.05, 0, EXHAUSTED, True))
        now += 0.05
    found = measured(log, {"measure_s": 1.0, "min_steps": 10}, ended=True)
    assert sum(marks for *_, marks in found.parts(1)) == sum(
        found.first <= mark < found.last for mark in found.ledger.marks
    )
