"""Breakdown of a window's time: what nests in something else counts once, on host and device."""

from dataclasses import asdict

import pytest

from advisor.analysis import breakdown
from advisor.analysis.device_time import DeviceClock, held_against, seconds
from advisor.analysis.events import (
    DeviceMark,
    EventLog,
    HookChange,
    HostWait,
    LoaderFacts,
    Span,
    without,
)
from advisor.analysis.measurement import recorded_stretch
from advisor.analysis.step_series import OPTIMIZER, StepSeries
from advisor.analysis.window import Window
from advisor.model import Shares
from tests.analysis.logs import PLAN, backward, call, detected, fetch, log_with, update

PLAIN = {"data_wait": 0.4, "compute": 0.5, "other": 0.1}


def log_of(shape: str, *, recorded: int = 60) -> EventLog:
    """Sixty steps of 100 ms: 40 of loading, 25 of forward, 20 of backward, 5 of the update.

    The remaining 10 are of what the program does beside. `shape`: what lies inside of the
    optimizer's step. Forwards are recorded in so many steps.
    """
    log = log_with()
    for step in range(60):
        now = 0.1 * step
        fetch(log, now, now + 0.04, 0, 4.0)
        if step < recorded:
            call(log, now + 0.04, now + 0.065, 4.0)
        backward(log, now + 0.065, now + 0.085)
        begin = {"nothing": 0.085, "passes": 0.04, "loading and passes": 0.0}[shape]
        update(log, now + begin, now + 0.09)
    return log


def shares_of(log: EventLog, until: float = 6.0) -> dict[str, float]:
    found = Window(detected(log), 10, 58)
    shares = breakdown.shares(log, found, Span(found.start, until), DeviceClock([]))
    return {name: part for name, part in asdict(shares).items() if part is not None}


@pytest.mark.parametrize(("counted_from", "parts"), [(1.2, PLAIN), (0.05, {})])
def test_a_late_end_of_warm_up_leaves_what_was_recorded_before(counted_from, parts) -> None:
    """A slow moment may move it. Where no step was recorded, no part is made up."""
    log = log_of("nothing", recorded=12)
    log.hooks.append(HookChange(counted_from, counting=True, calls=False))
    log.warm_until = 1.5
    found = Window(detected(log), 20, 58)
    stretch = recorded_stretch(log, PLAN, found)
    shares = asdict(breakdown.shares(log, found, stretch, DeviceClock([])))
    assert {n: part for n, part in shares.items() if part} == pytest.approx(parts, abs=0.01)


@pytest.mark.parametrize("recorded", [60, 20])
@pytest.mark.parametrize("shape", ["nothing", "passes", "loading and passes"])
def test_what_nests_in_the_optimizers_step_counts_once(shape, recorded) -> None:
    """`optimizer.step(closure)` spends the same time on the same things as the plain loop."""
    shares = shares_of(log_of(shape, recorded=recorded), until=0.1 * recorded)
    assert shares == pytest.approx(PLAIN, abs=0.01)


def test_validation_and_what_it_saves_are_left_out() -> None:
    """A validation lasts until the next batch is asked for."""
    log = log_of("nothing")
    log.loaders[1] = LoaderFacts(iterated=True)
    gap = log.fetches[30].start - 0.01
    fetch(log, gap, gap + 0.001, 1, 4.0)
    log.fetches.insert(30, log.fetches.pop())
    log.saves += [Span(gap + 0.004, gap + 0.01), Span(gap + 0.491, gap + 0.498)]
    shares = shares_of(log)
    assert shares["saving"] == pytest.approx(0.007 / 4.79, rel=0.01)
    assert sum(shares.values()) == pytest.approx(1)


def test_on_a_device_the_optimizers_own_part_is_a_call_of_its_own() -> None:
    """A device that is behind after the update was not busy through the loading in its closure."""
    log = log_of("loading and passes")
    fetches = [Span(each.start, each.end) for each in log.fetches]
    marks = [DeviceMark(each.end, each.end + 0.006) for each in log.updates]
    found = seconds(log, fetches, DeviceClock(marks), without([Span(0.0, 6.0)], fetches))
    assert found["compute"] < 0.15 * 6.0


def calls_a_step(
    items: list[int], first: int, last: int, *, counted_from: float | None = None
) -> list[float]:
    """Calls a step that are told of steps of a second each, with so many calls in each."""
    log, series = EventLog(), StepSeries(OPTIMIZER)
    for step, many in enumerate(items):
        for number in range(many):
            end = step + 0.5 * (number + 1) / many
            if counted_from is None or end <= counted_from:
                log.waits.append(HostWait(end - 0.001, end, "train.py:9", "item"))
        series.bounds.append(step + 1.0)
    if counted_from is not None:
        log.hooks.append(HookChange(counted_from, counting=True, calls=False))
    points = breakdown.sync_points(log, Window(series, first, last))
    return [point.per_step for point in points]


def test_calls_and_steps_are_of_the_window() -> None:
    """An evaluation before the first step, slow first steps and what follows are none of it."""
    assert calls_a_step([40, 9, 9, *[2] * 20, 30], 3, 22) == [2.0]


def test_steps_that_are_only_counted_are_none_without_calls() -> None:
    assert calls_a_step([40, *[3] * 29], 15, 25, counted_from=10.0) == [3.0]


def device_shares(
    log: EventLog, marks: list[tuple[float, float]], start: float, end: float
) -> dict[str, float]:
    """Parts of the time from `start` to `end`; they add up to 1."""
    fetches = [Span(each.start, each.end) for each in log.fetches]
    clock = DeviceClock([DeviceMark(*mark) for mark in marks])
    found = seconds(log, fetches, clock, [Span(start, end)])
    total = sum(found.values())
    assert total == pytest.approx(end - start)
    return {name: part / total for name, part in found.items()}


def steps(
    count: int, *, load: float, work: float, kernel: float, marked: bool
) -> tuple[EventLog, list[tuple[float, float]], float]:
    """A loop of seconds each: fetch, a mark, a call that queues the kernel, a wait for it.

    `marked`: the call's end has a mark of its own, which is left out where it comes soon after the
    one before.
    """
    log, marks, now = EventLog(), [], 0.0
    for _ in range(count):
        marks.append((now, now))
        fetch(log, now, now + load, 0, 1.0)
        now += load
        call(log, now, now + work, 1.0)
        done = now + kernel
        now += work
        if marked:
            marks.append((now, done))
        log.waits.append(HostWait(now, done, "train.py:9", "item"))
        now = done
    return log, marks, now


@pytest.mark.parametrize(
    ("work", "marked"), [(3e-4, True), (3e-4, False), (8e-4, False), (5e-3, True)]
)
def test_a_device_that_is_waited_for_works(work, marked) -> None:
    """However soon the call follows the last mark: one model launches for milliseconds, another
    queues all of its work at once."""
    log, marks, end = steps(10, load=1e-4, work=work, kernel=0.06, marked=marked)
    found = device_shares(log, marks, 0.0, end)
    assert found["compute"] > 0.9
    assert found["sync"] < 0.05


def test_what_was_copied_before_the_window_is_none_of_it() -> None:
    """A blocking copy waits for the step before: 24 ms of 76, in which the host could have done its
    own 52. How many steps the warm-up had makes no difference."""
    found = []
    for warm in (0, 5, 50):
        log, marks, now = EventLog(), [], 0.0
        for _ in range(warm + 8):
            call(log, now + 0.052, now + 0.0525, 1.0)
            marks.append((now + 0.0525, now + 0.076))
            log.copies.append(Span(now + 0.0526, now + 0.076))
            now += 0.076
        found.append(device_shares(log, marks, warm * 0.076, now))
    for each in found:
        assert each == pytest.approx(found[0])
        assert each["host_to_device"] == pytest.approx(24 / 76, abs=0.02)
        assert each["other"] == pytest.approx(28 / 76, abs=0.02)


def held_up(stalls_s: list[float]) -> dict[str, float]:
    """Parts of steps whose call launches for 10 ms, then queues 3 ms of work: 1 ms inside of it.

    In each the host is held up in its call by so long, as others on the machine do.
    """
    log, marks, now = EventLog(), [], 0.0
    for stall_s in stalls_s:
        end = now + 0.010 + stall_s
        call(log, now, end, 1.0)
        marks += [(now, now), (end, end + 0.002)]
        now = end + 0.002
        log.waits.append(HostWait(end, now, "train.py:9", "item"))
    return device_shares(log, marks, 0.0, now)


def test_a_host_that_is_held_up_is_no_work_of_the_device() -> None:
    """Equal calls queue equal work: what the quickest was done in bounds the others."""
    quiet, crowded = held_up([0.0] * 10), held_up([0.0, *[0.030] * 9])
    assert quiet["compute"] == pytest.approx(1.0, abs=0.01), "as far as can be known"
    assert crowded["compute"] < 0.4


def test_a_wait_ends_for_the_device_when_its_work_is_done() -> None:
    """The host wakes 20 ms later, beside load."""
    log, marks, now = EventLog(), [], 0.0
    for _ in range(10):
        call(log, now, now + 0.001, 1.0)
        marks += [(now, now), (now + 0.001, now + 0.011)]
        log.waits.append(HostWait(now + 0.001, now + 0.031, "train.py:9", "item"))
        now += 0.031
    assert device_shares(log, marks, 0.0, now)["compute"] == pytest.approx(11 / 31, abs=0.02)


@pytest.mark.parametrize(
    ("util_pct", "compute"), [(None, 0.58), (40.0, 0.40), (57.0, 0.58), (97.0, 0.58)]
)
def test_a_share_that_nvml_refutes_is_nvmls(util_pct, compute) -> None:
    """It never says too little; what it refutes was idle while the host launched."""
    shares = held_against(Shares(compute=0.58, launch=0.1, other=0.32), util_pct)
    assert shares.compute == pytest.approx(compute)
    assert shares.compute + shares.launch + shares.other == pytest.approx(1.0)


@pytest.mark.parametrize("until_s", [0.009, 0.0095])
def test_a_device_that_works_while_the_host_loads_is_not_waited_for(until_s) -> None:
    """Once steps are only counted, marks are too rare to tell: the recorded steps say how much.

    Also where these idled for nothing at all: that is measured, and no gap to fill.
    """
    log = log_with()
    clock = DeviceClock([])
    for step in range(400):
        now = 0.005 * step
        fetch(log, now, now + 0.004, 0, 4.0)
        call(log, now + 0.004, now + 0.005, 4.0)
        if step < 100 or step % 4 == 0:  # each 20 ms
            clock.marks.append(DeviceMark(now + 0.005, now + until_s))
    clock = DeviceClock(clock.marks)
    log.marks.extend(clock.marks)
    found = Window(detected(log), 150, 390)
    shares = breakdown.shares(log, found, Span(0.1, 0.45), clock)
    assert shares.data_wait == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("step_s", "compute"), [(0.1, 0.6), (0.15, 0.4), (0.08, 0.75)])
def test_a_step_keeps_a_device_as_long_where_it_is_only_counted(step_s, compute) -> None:
    """Of recorded steps of 100 ms it works in 60, and does so of slower and quicker ones."""
    log, marks, now = log_with(), [], 0.0
    for step in range(60):
        lasts_s = 0.1 if step < 20 else step_s
        fetch(log, now, now + 0.001, 0, 4.0)
        call(log, now + 0.001, now + 0.002, 4.0)
        if step < 20:
            marks.append(DeviceMark(now + 0.002, now + 0.062))
        now += lasts_s
        update(log, now - 0.001, now)
    window, clock = Window(detected(log), 25, 55), DeviceClock(marks)
    found = breakdown.shares(log, window, Span(0.2, 2.0), clock)
    assert found.compute == pytest.approx(compute, abs=0.02)
    assert sum(filter(None, asdict(found).values())) == pytest.approx(1)


def test_what_a_device_waits_for_other_ranks_is_an_exchange() -> None:
    """Its own work of a step ends after 30 of 100 ms, and the stream goes on after 90."""
    log = EventLog(exchanges=[Span(0.1 * n + 0.03, 0.1 * n + 0.09) for n in range(10)])
    marks = [DeviceMark(0.1 * n, 0.1 * n + 0.09) for n in range(10)]
    found = seconds(log, [], DeviceClock(marks), [Span(0.0, 1.0)])
    assert found["compute"] == pytest.approx(0.3)
    assert found["exchange"] == pytest.approx(0.6)


def test_a_copy_that_the_device_makes_itself_is_no_compute() -> None:
    """Queued without a wait, it takes 20 ms of each 50 ms that the device was busy."""
    log = EventLog(device_copies=[Span(0.1 * n, 0.1 * n + 0.02) for n in range(10)])
    marks = [DeviceMark(0.1 * n, 0.1 * n + 0.05) for n in range(10)]
    found = seconds(log, [], DeviceClock(marks), [Span(0.0, 1.0)])
    assert found["compute"] == pytest.approx(0.3)
    assert found["host_to_device"] == pytest.approx(0.2)
