"""Ends of epochs: restarts of the loader belong to the rate, validation does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.analysis.events import PASS_ENDED, EventLog
from advisor.analysis.step_detection import detect_steps
from advisor.analysis.window import Window, find_window
from advisor.model import MeasurePlan
from tests.analysis.logs import backward, call, fetch, log_with, measured, train, update

STEP_S, BATCH = 0.05, 4.0
PLAN = MeasurePlan(measure_s=3.0)


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
        fetch(log, now, now + first + 0.01, 0, BATCH)
        now += first + 0.01
        call(log, now, now + 0.02, BATCH)
        backward(log, now + 0.02, now + 0.04)
        now += 0.04
        update(log, now, now)
        now = train(log, steps - 1, start=now, load=0.01, work=0.04, batch=BATCH)
        fetch(log, now, now, 0, PASS_ENDED)
        if validation_s:
            now = validate(log, now, 0.9 * validation_s) + 0.1 * validation_s
    return log


def validate(log: EventLog, start: float, seconds: float) -> float:
    """Append ten batches of another loader, and its end."""
    each = seconds / 10
    for number in range(10):
        now = start + number * each
        fetch(log, now, now + each / 2, 1, 8.0)
        call(log, now + each / 2, now + each, 8.0, graded=False)
    fetch(log, start + 10 * each, start + 10 * each, 1, PASS_ENDED)
    return start + seconds


def until(log: EventLog, now: float) -> EventLog:
    """The part of a log that was written by `now`."""
    seen = EventLog(loaders=log.loaders, modules=log.modules)
    for name in ("fetches", "calls", "backwards", "updates"):
        getattr(seen, name).extend(each for each in getattr(log, name) if each.end <= now)
    return seen


def live(log: EventLog) -> tuple[Window, float]:
    """The window of a program that runs, and the time at which it was full."""
    now = 0.5
    while now < 360:
        seen = until(log, now)
        series = detect_steps(seen, PLAN)
        if series is not None:
            window, wait_s = find_window(seen, series, PLAN, now=now)
            if window is not None and not wait_s:
                return window, now
        now += 0.5
    pytest.fail("the window never was full")


@pytest.mark.parametrize("validation_s", [0.0, 0.1, 2.0, 20.0])
@pytest.mark.parametrize("epoch_s", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_rate_is_of_whole_epochs_without_their_validation(
    epoch_s: float, validation_s: float, persistent: bool
) -> None:
    """Wherever a window ends, equal configs have one rate."""
    log = log_of_epochs(epoch_s, validation_s, start_s=4.0, persistent=persistent)
    window, _ = live(log)
    paid_s = epoch_s + (0.0 if persistent else 4.0)
    assert window.units_per_s() == pytest.approx(epoch_s / STEP_S * BATCH / paid_s, rel=0.03)


@pytest.mark.parametrize("epoch_s", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("validation_s", [0.1, 2.0, 20.0])
def test_a_window_ends_in_time(epoch_s: float, validation_s: float) -> None:
    """It waits for one validation at most."""
    window, now = live(log_of_epochs(epoch_s, validation_s, start_s=1.0))
    assert now - window.start <= 3 * PLAN.measure_s + validation_s + 1.5


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
    window = measured(seen, PLAN, ended=True)
    assert window.units_per_s() == pytest.approx(40 * BATCH / 3.0, rel=0.02)
