"""Measured window: after its warm-up, whole epochs, long enough, without validation."""

import random
from dataclasses import replace

import pytest

from advisor.analysis import window
from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import (
    PASS_ENDED,
    DeviceMark,
    EventLog,
    HookChange,
    ProbeTime,
    Span,
)
from advisor.analysis.measurement import probe_share
from advisor.analysis.progress import advise
from advisor.analysis.step_detection import detect_steps, measured_part
from advisor.analysis.window import Window, find_window
from advisor.model import MeasurePlan
from tests.analysis.logs import (
    PLAN,
    backward,
    call,
    detected,
    fetch,
    infer,
    log_with,
    measured,
    train,
    update,
)


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


def test_a_sampler_whose_workers_start_beside_it_is_warm_later() -> None:
    """They fill their queue on the same CPUs, through the first dozens of forwards of a batch."""
    log, now, took = log_with(workers=12, prefetch=2), 0.0, 0.2
    plan = MeasurePlan(measure_s=2.0, min_steps=8, forwards_per_unit=1000.0)
    fetch(log, now, now, 0, 8.0)
    wait_s = 1.0
    while wait_s:
        call(log, now, now + took, 8.0, graded=False)
        now, took = now + took, max(0.01, 0.93 * took)
        wait_s = find_window(log, detected(log, plan), plan)[1] if len(log.calls) > 10 else 1.0
    assert measured(log, plan).units_per_s() == pytest.approx(8 / 1000 / 0.01, rel=0.3)


@pytest.mark.parametrize(("epochs", "steps", "step_s"), [(12, 20, 0.01), (5, 8, 0.1)])
def test_short_epochs_are_measured_whole(epochs, steps, step_s) -> None:
    """Each pays for its pause, also where no epoch holds the steps that a window wants."""
    log, now = log_with(), 0.0
    for _ in range(epochs):
        now = train(log, steps, start=now, work=0.9 * step_s, load=0.1 * step_s)
        fetch(log, now, now, 0, PASS_ENDED)
        now += 10 * step_s / 4
    found, wait_s = window.find_window(log, detected(log), PLAN)
    assert not wait_s
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
    log = log_with()
    train(log, 5)
    found = measured(log, MeasurePlan(measure_s=3.0, min_steps=20), ended=True)
    assert found.units_per_s() == pytest.approx(400.0)
    assert "ended by itself" in found.notes[0]


@pytest.mark.parametrize("trains", [True, False])
def test_batches_loaded_ahead_are_no_rate_of_a_run_that_is_too_short_to_use_them_up(trains) -> None:
    """Two large batches that two workers made in 6 s: the second one only seems to cost nothing."""
    log, now = log_with(workers=2, prefetch=2), 0.0
    for load_s in (6.0, 0.001):
        fetch(log, now, now + load_s, 0, 750.0)
        now += load_s
        call(log, now, now + 0.1, 750.0, graded=trains)
        if trains:
            backward(log, now + 0.1, now + 0.2)
            update(log, now + 0.2, now + 0.2)
        now += 0.2
    fetch(log, now, now, 0, PASS_ENDED)
    found = measured(log, MeasurePlan(measure_s=3.0, min_steps=20), ended=True)
    assert found.units_per_s() == pytest.approx(1500 / now, rel=0.01)
    assert found.on_device(DeviceClock([DeviceMark(t, t) for t in found.series.bounds])) is None
    assert "whole run" in found.notes[0]


def test_part_rates_are_of_equally_many_steps() -> None:
    log = log_with()
    now = train(log, 100)
    train(log, 100, start=now, work=0.018)
    rates = measured(log, MeasurePlan(measure_s=1.0, min_steps=10)).part_rates()
    assert len(rates) == window.PARTS
    assert (rates[0], rates[-1]) == pytest.approx((400.0, 200.0))


def test_part_rates_are_of_whole_passes_where_these_are_short() -> None:
    """Each begins with the start of its workers: a part with one would be the slow one."""
    log, now = log_with(workers=2, prefetch=2), 0.0
    for _ in range(12):
        now = train(log, 1, start=now, load=0.1)
        now = train(log, 24, start=now)
        fetch(log, now, now, 0, PASS_ENDED)
    rates = measured(log, MeasurePlan(measure_s=2.0, min_steps=10)).part_rates()
    assert len(rates) > 4
    assert max(rates) == pytest.approx(min(rates))


def test_quick_steps_count_once_they_are_only_counted() -> None:
    """Hooks make them longer."""
    log = log_with()
    now = train(log, 30)
    log.hooks.append(HookChange(now, counting=True, calls=False))
    train(log, 60, start=now)
    assert measured(log, MeasurePlan(measure_s=0.4, min_steps=10)).start >= now


@pytest.mark.parametrize(("work", "counted"), [(0.008, True), (0.1, False)])
def test_only_quick_steps_are_ever_only_counted(work, counted) -> None:
    """Hooks cost a step of a tenth of a second nothing that shows."""
    log = log_with()
    now = train(log, 40, work=work)
    assert (advise(log, MeasurePlan(), now).phase == "count") is counted


@pytest.mark.parametrize("seed", range(20))
def test_a_window_that_stopped_a_run_is_the_one_that_is_measured(seed) -> None:
    """Passes are short and their workers start anew, so that a step takes 20 ms in the mean.

    Within a pass steps take 3 ms: the latest ones are quick or slow by where the pass stands.
    """
    draw, plan, now = random.Random(seed), MeasurePlan(), 0.0
    passes = log_with(workers=16, prefetch=2)
    while now < 20.0:
        start_s = draw.uniform(0.36, 0.5)
        for step in range(24):
            load_s = 0.001 if step else start_s
            fetch(passes, now, now + load_s, 0, 16.0)
            call(passes, now + load_s, now + load_s + 0.002, 16.0, graded=False)
            now += load_s + 0.002
        fetch(passes, now, now, 0, PASS_ENDED)
    hooks: list[HookChange] = []

    def seen_at(time: float) -> EventLog:
        return replace(passes.inside([Span(-1.0, time)]), hooks=list(hooks))

    looked, phase = 0.1, None
    while phase != "full":
        advice = advise(seen_at(looked), plan, looked)
        phase = advice.phase
        if phase == "count":
            hooks.append(HookChange(looked, counting=True, calls=advice.calls))
        looked += max(advice.look_in_s, 0.05)
    log = seen_at(looked + draw.uniform(0.0, 0.3))
    rate = measured(log, plan).units_per_s()
    pass_s = 0.43 + 23 * 0.001 + 24 * 0.002
    assert rate == pytest.approx(24 * 16.0 / pass_s, rel=0.15)


def test_on_a_device_the_window_lies_between_steps_that_it_marked() -> None:
    """The host queues a step in 10 ms, the device takes 12; few steps have a mark of their own."""
    log = log_with()
    train(log, 100)
    log.marks = [DeviceMark(u.end, u.end * 1.2 + 0.05) for u in log.updates[::7]]
    found = measured(log).on_device(DeviceClock(log.marks))
    assert found.units_per_s() == pytest.approx(4 / 0.012)


@pytest.mark.parametrize(("built", "full"), [(True, False), (False, True)])
def test_passes_before_the_first_step_of_an_optimizer_are_no_steps(built, full) -> None:
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


STEP_S, BATCH = 0.05, 4.0
EPOCHS = MeasurePlan(measure_s=3.0)


def log_of_epochs(
    epoch_s: float, validation_s: float, *, start_s: float, persistent: bool = False
) -> EventLog:
    """Log of six minutes: epochs of steps of 50 ms, each followed by a validation.

    The four workers of the training loader need `start_s`; persistent ones only once. A tenth of
    the validation is writing its result.
    """
    steps = round(epoch_s / STEP_S)
    items = round(steps * BATCH)
    log = log_with(loaders=2, workers=4, prefetch=2, persistent=persistent, items=items)
    now = 0.0
    while now < 360:
        first = start_s if now == 0 or not persistent else 0.0
        now = train(log, 1, start=now, load=first + 0.01, work=0.04, batch=BATCH)
        now = train(log, steps - 1, start=now, load=0.01, work=0.04, batch=BATCH)
        fetch(log, now, now, 0, PASS_ENDED)
        if validation_s:
            now = validate(log, now, 0.9 * validation_s) + 0.1 * validation_s
    return log


def validate(log: EventLog, start: float, seconds: float) -> float:
    """Append ten batches of another loader, and its end."""
    return infer(log, 10, start=start, length=seconds / 10, batch=8.0)


def until(log: EventLog, now: float) -> EventLog:
    """The part of a log that was written by `now`."""
    seen = EventLog(loaders=log.loaders, modules=log.modules)
    for name in ("fetches", "calls", "backwards", "updates"):
        getattr(seen, name).extend(each for each in getattr(log, name) if each.end <= now)
    return seen


def live(log: EventLog, plan: MeasurePlan = EPOCHS) -> tuple[Window, float]:
    """The window of a program that runs, and the time at which it was full."""
    now = 0.5
    while now < 360:
        seen = measured_part(until(log, now), plan)
        series = detect_steps(seen, plan)
        if series is not None:
            window, wait_s = find_window(seen, series, plan, now=now)
            if window is not None and not wait_s:
                return window, now
        now += 0.5
    pytest.fail("the window never was full")


@pytest.mark.parametrize("validation_s", [0.0, 0.1, 20.0])
@pytest.mark.parametrize("epoch_s", [0.5, 10.0])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_rate_is_of_whole_epochs_without_their_validation(
    epoch_s, validation_s, persistent
) -> None:
    """Wherever a window ends, equal configs have one rate. It waits for one validation at most."""
    log = log_of_epochs(epoch_s, validation_s, start_s=4.0, persistent=persistent)
    window, now = live(log)
    paid_s = epoch_s + (0.0 if persistent else 4.0)
    assert window.units_per_s() == pytest.approx(epoch_s / STEP_S * BATCH / paid_s, rel=0.03)
    assert now - window.start <= 3 * EPOCHS.measure_s + validation_s + 4.5


@pytest.mark.parametrize("validation_s", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("start_s", [0.0, 1.0])
def test_the_rate_of_validations_is_without_the_training_between_them(
    validation_s, start_s
) -> None:
    """Each pays for the start of its workers, also where the window ends within the first one."""
    log, now, step_s = log_with(loaders=2, workers=4, prefetch=2, items=400), 0.0, validation_s / 50
    while now < 300:
        now = train(log, 40, start=now, load=0.01, work=0.04, batch=BATCH)
        fetch(log, now, now, 0, PASS_ENDED)
        fetch(log, now, now + start_s, 1, 8.0)
        now += start_s + step_s
        call(log, now - step_s, now, 8.0, graded=False)
        now = infer(log, 49, start=now, length=step_s, batch=8.0) + 3.0
    window, _ = live(log, replace(EPOCHS, validation=True))
    assert window.units_per_s() == pytest.approx(400 / (validation_s + start_s), rel=0.05)


def test_a_validation_in_the_middle_of_an_epoch_changes_nothing() -> None:
    rates = []
    for seconds in (0.0, 0.2, 1.0):
        log, now = log_with(loaders=2), 0.0
        for _ in range(40):
            now = train(log, 15, start=now, load=0.01, work=0.04)
            now = validate(log, now, seconds) if seconds else now
        rates.append(live(log)[0].units_per_s())
    assert rates == pytest.approx([80.0] * 3, rel=0.01)


def test_a_batch_loaded_ahead_of_a_validation_trains_after_it() -> None:
    """The step between a validation and the next batch is training."""
    log, now = log_with(loaders=2), 0.0
    for number in range(200):
        fetch(log, now, now + 0.01, 0, BATCH)
        if number % 20 == 19:
            now = validate(log, now + 0.01, 1.0) - 0.01
        call(log, now + 0.01, now + 0.03, BATCH)
        backward(log, now + 0.03, now + 0.05)
        now += 0.05
        update(log, now, now)
    assert live(log)[0].units_per_s() == pytest.approx(80.0, rel=0.03)


def test_a_loader_that_is_made_anew_for_each_epoch_restarts_too() -> None:
    """Each is a loader of its own, built on the same line."""
    log, now = log_with(loaders=20, workers=4, prefetch=2), 0.0
    log.loaders = {n: replace(facts, site="train.py:8") for n, facts in log.loaders.items()}
    for number in range(20):
        fetch(log, now, now + 1.0, number, BATCH)
        now = train(log, 40, start=now + 1.0, load=0.01, work=0.04, loader=number)
        fetch(log, now, now, number, PASS_ENDED)
    assert live(log)[0].units_per_s() == pytest.approx(41 * BATCH / 3.0, rel=0.05)


def test_a_run_to_the_end_counts_its_restarts() -> None:
    log = log_of_epochs(2.0, 1.0, start_s=1.0)
    seen = until(log, 40.0)
    window = measured(seen, EPOCHS, ended=True)
    assert window.units_per_s() == pytest.approx(40 * BATCH / 3.0, rel=0.02)


def test_the_probes_own_time_is_a_share_of_the_window() -> None:
    """As its hooks measured it. On a card the host runs ahead, and loses no step to them."""
    log = EventLog()
    train(log, 100)
    found = measured(log, ended=True)
    seconds = found.end - found.start
    log.spent = [ProbeTime(found.start + at * seconds, 7.0 + 0.2 * at * seconds) for at in (0, 1)]
    assert probe_share(log, found) == pytest.approx(0.2)
    log.marks = [DeviceMark(found.start, found.start)]
    assert probe_share(log, found) == 0.0
