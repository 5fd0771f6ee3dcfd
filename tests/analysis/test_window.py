"""Which part of a run is measured: after its warm-up, whole epochs, long enough, and in parts."""

from __future__ import annotations

import pytest

from advisor.analysis import window
from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import PASS_ENDED, DeviceMark, HookChange
from advisor.analysis.progress import advise
from advisor.model import MeasurePlan
from tests.analysis.logs import PLAN, backward, call, detected, fetch, log_with, measured, train


def test_a_full_queue_is_not_taken_for_speed() -> None:
    """The first workers x prefetch batches came from a queue filled while the program started."""
    log = log_with(workers=2, prefetch=8)
    now = train(log, 18, load=0.001, work=0.002)
    train(log, 200, start=now, load=0.018, work=0.002)
    found = measured(log, MeasurePlan(measure_s=1.0, min_steps=10))
    assert found.units_per_s() == pytest.approx(4 / 0.02, rel=0.01)
    assert found.count % 2 == 0


def test_slow_first_steps_are_warm_up() -> None:
    """Compilation and the like are detected, not assumed."""
    log = log_with()
    now = train(log, 15, work=0.2)
    train(log, 200, start=now)
    assert measured(log).units_per_s() == pytest.approx(400.0)


@pytest.mark.parametrize(("epochs", "steps", "step_s"), [(12, 20, 0.01), (5, 8, 0.1)])
def test_short_epochs_are_measured_whole(epochs: int, steps: int, step_s: float) -> None:
    """Each pays for its pause, also where no epoch holds the steps that a window wants."""
    log, now = log_with(), 0.0
    for _ in range(epochs):
        now = train(log, steps, start=now, work=0.9 * step_s, load=0.1 * step_s)
        fetch(log, now, now, 0, PASS_ENDED)
        now += 10 * step_s / 4
    found, wait_s = window.find_window(log, detected(log), PLAN)
    assert not wait_s
    assert found is not None
    paid_s = (steps + 10 / 4) * step_s
    assert found.units_per_s() == pytest.approx(steps * 4 / paid_s, rel=0.001)


def test_a_few_steps_are_enough_where_each_takes_long() -> None:
    log = log_with()
    train(log, 9, work=1.9, load=0.1)
    assert measured(log).units_per_s() == pytest.approx(2.0)


def test_a_window_that_is_not_full_says_when_to_look_again() -> None:
    """Near the end, neither much too early nor too late."""
    log = log_with()
    train(log, 30)
    _, wait_s = window.find_window(log, detected(log), PLAN)
    assert 0.1 < wait_s < 0.5


def test_a_short_program_uses_what_there_is() -> None:
    """And says that its warm-up was cut short."""
    log = log_with(workers=4, prefetch=4)
    train(log, 12)
    found = measured(log, MeasurePlan(measure_s=3.0, min_steps=20), ended=True)
    assert found.units_per_s() == pytest.approx(400.0)
    assert "ended by itself" in found.notes[0]


def test_part_rates_are_of_equally_many_steps() -> None:
    log = log_with()
    now = train(log, 100)
    train(log, 100, start=now, work=0.018)
    rates = measured(log, MeasurePlan(measure_s=1.0, min_steps=10)).part_rates()
    assert len(rates) == window.PARTS
    assert (rates[0], rates[-1]) == pytest.approx((400.0, 200.0))


def test_quick_steps_count_once_they_are_only_counted() -> None:
    """Hooks make them longer; steps of a tenth of a second they do not."""
    for work, slow in ((0.008, False), (0.1, True)):
        log = log_with()
        now = train(log, 30, work=work)
        log.hooks.append(HookChange(now, counting=True, calls=False))
        train(log, 60, start=now, work=work)
        found = measured(log, MeasurePlan(measure_s=0.4, min_steps=10))
        assert (found.start < now) == slow


def test_on_a_device_the_window_lies_between_steps_that_it_marked() -> None:
    """The host queues a step in 10 ms, the device takes 12; few steps have a mark of their own."""
    log = log_with()
    train(log, 100)
    log.marks = [DeviceMark(u.end, u.end * 1.2 + 0.05) for u in log.updates[::7]]
    found = measured(log).on_device(DeviceClock(log.marks))
    assert found is not None
    assert found.units_per_s() == pytest.approx(4 / 0.012)


@pytest.mark.parametrize(("built", "full"), [(True, False), (False, True)])
def test_passes_before_the_first_step_of_an_optimizer_are_no_steps(built: bool, full: bool) -> None:
    """An accumulation of many batches; without an optimizer the program updates by itself."""
    log = log_with()
    for number in range(300):
        start = 0.01 * number
        fetch(log, start, start + 0.002, 0, 4.0)
        call(log, start + 0.002, start + 0.005, 4.0)
        backward(log, start + 0.005, start + 0.009)
    log.hooks.append(HookChange(1.0, counting=True, calls=True))
    advice = advise(log, PLAN, 3.0, optimizers_built=built)
    assert (advice.phase == "full") is full
