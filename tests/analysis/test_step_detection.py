"""What one step is in a loop, and how many units it finished: only what was trained on counts."""

from dataclasses import replace

import pytest

from advisor.analysis import breakdown
from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import PASS_ENDED, EventLog, HookChange, OptimizerStep, Span
from advisor.analysis.progress import stop_point
from advisor.analysis.step_detection import jumps
from advisor.analysis.window import find_window
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


def test_training_counts_the_train_loader_only() -> None:
    """A sanity validation before, and one in between, is another loader's."""
    log = log_with(loaders=2)
    now = infer(log, 20, start=0.0)
    now = train(log, 100, start=now)
    now = infer(log, 20, start=now)
    train(log, 100, start=now)
    found = measured(log)
    assert found.series.loader == 0
    assert found.series.batch == 4
    assert found.units_per_s() == pytest.approx(400.0)
    shares = breakdown.shares(log, found, Span(found.start, found.end), DeviceClock([]))
    assert shares.data_wait == pytest.approx(0.2)


@pytest.mark.parametrize(("updates", "fed"), [(10, True), (200, False)])
def test_a_loader_feeds_a_training_that_goes_on_with_its_batches(updates, fed) -> None:
    """Chunks of one batch may be many updates; after hundreds it was a validation of one batch."""
    log = log_with()
    now = 0.0
    for _ in range(10):
        now = train(log, 1, start=now, batch=64.0)
        for _ in range(updates - 1):
            call(log, now, now + 0.004, 4.0)
            backward(log, now + 0.004, now + 0.008)
            now += 0.008
            update(log, now, now)
    series = detected(log)
    assert (series.loader == 0) == fed
    assert series.batch == (64.0 if fed else 4.0)


def test_accumulation_is_one_step() -> None:
    """Units of a step are those of all its batches."""
    log = log_with()
    train(log, 60, accumulate=4)
    found = measured(log)
    assert found.series.batches_per_step == 4
    assert found.seconds / found.count == pytest.approx(0.04)
    assert found.units_per_s() == pytest.approx(400.0)


SIZES = {"A": 4.0, "B": 12.0}


def loop(log: EventLog, pattern: str, times: int) -> None:
    """Append `times` rounds of events, a millisecond each: A and B load a batch of their loader,
    f is a forward of A's items, g one of two such batches, b a backward, s a step."""
    now = len(log.updates) * 1.0
    for _ in range(times):
        for event in pattern:
            now += 0.001
            if event in SIZES:
                loader = "AB".index(event)
                fetch(log, now, now + 0.0001, loader, SIZES[event])
            elif event in "fg":
                items = SIZES["A"] * (1 + (event == "g"))
                call(log, now, now + 0.0005, items)
            elif event == "b":
                backward(log, now, now + 0.0005)
            else:
                update(log, now, now + 0.0005)


TRAINED = {
    "plain": ("Afbs", 4),
    "every second one skipped": ("AAfbs", 4),
    "some skipped": ("AfbsAAAfbs", 4),
    "gathered for two backwards": ("AAffbbs", 8),
    "gathered for one backward": ("AAffbs", 8),
    "gathered into one forward": ("AAgbs", 8),
    "losses summed": ("AfAfbs", 8),
    "accumulation": ("AfbAfbs", 8),
    "two backwards a batch, some skipped": ("AfbfbsAAfbfbs", 4),
    "zip": ("ABfbs", 4),
    "zip, a forward for each": ("ABffbs", 4),
    "two loaders in turn": ("AfbsBfbs", 8),
    "loaded ahead": ("AffbfbsA", 4),
}
"""Patterns of a loop, and the units of a step."""


@pytest.mark.parametrize("name", TRAINED)
def test_batches_that_were_trained_on(name) -> None:
    """What was loaded and skipped is no unit; what was loaded ahead or gathered is."""
    pattern, units = TRAINED[name]
    log = log_with(loaders=2)
    loop(log, pattern, 100)
    series = detected(log)
    whole = series.units[10:-10]
    assert sum(whole) / len(whole) == pytest.approx(units, rel=0.02)


def test_a_batch_loaded_ahead_over_short_epochs_is_none_skipped() -> None:
    """The first two batches of each epoch come in a row."""
    log = log_with()
    for _ in range(12):
        loop(log, "A", 1)
        loop(log, "Afbs", 19)
        loop(log, "fbs", 1)
        fetch(log, log.updates[-1].end, log.updates[-1].end, 0, PASS_ENDED)
    series = detected(log)
    assert sum(series.units) == pytest.approx(4 * 20 * 12, rel=0.01)


@pytest.mark.parametrize(
    ("pattern", "units"),
    [("fbs", 4), ("fbfbs", 8), ("fffbs", 4), ("gbs", 8)],
    ids=["plain", "accumulation", "three views of a batch", "larger batch"],
)
def test_units_without_a_loader(pattern, units) -> None:
    """One forward counts for each backward."""
    log = log_with(loaders=0)
    loop(log, pattern, 60)
    series = detected(log)
    assert set(series.units[1:]) == {units}


@pytest.mark.parametrize(
    ("pattern", "length_s", "optimizers"), [("ffbsfbs", 0.0005, 2), ("fbfbfbs", 0.006, 1)]
)
def test_a_batch_that_is_gone_through_again_is_one(pattern, length_s, optimizers) -> None:
    """A critic and its generator train on one batch, and a closure makes several backwards."""
    log = log_with(loaders=0)
    loop(log, pattern, 60)
    log.updates = [
        OptimizerStep(end - length_s, end, 1 + k % optimizers)
        for k, (_, end, _) in enumerate(log.updates)
    ]
    series = detected(log)
    assert set(series.units) == {4}
    assert series.accumulation == 1


def test_several_optimizers_are_one_loop() -> None:
    """Two networks trained in turn: the step is that of the one that steps most."""
    log = log_with()
    train(log, 100)
    others = [OptimizerStep(t - 0.001, t - 0.001, 2) for t, _, _ in log.updates[::5]]
    log.updates = sorted([*log.updates, *others])
    assert measured(log).units_per_s() == pytest.approx(400.0)


def test_steps_that_are_only_counted_keep_the_roles_of_those_recorded() -> None:
    """Forwards and passes are not recorded any more; batches and updates still are."""
    log = log_with(loaders=2)
    now = train(log, 40)
    log.hooks.append(HookChange(now, counting=True, calls=False))
    calls = len(log.calls)
    now = train(log, 100, start=now)
    now = infer(log, 30, start=now)
    train(log, 20, start=now)
    del log.calls[calls:], log.backwards[calls:]
    found = detected(log)
    assert (found.loader, found.batch, found.accumulation) == (0, 4, 1)
    assert found.steps == 159
    assert set(found.units) == {4}
    assert (len(found.aside), found.aside[0].start) == (1, found.bounds[139])


def test_batches_that_are_skipped_while_steps_are_counted_are_no_units() -> None:
    """A program that skips batches has its forwards recorded throughout."""
    log = log_with()
    loop(log, "AfbsAAAfbs", 60)
    log.hooks.append(HookChange(log.updates[-1].end, counting=True, calls=True))
    loop(log, "AfbsAAAfbs", 60)
    found = detected(log)
    assert found.skips
    assert sum(found.units[10:-10]) / len(found.units[10:-10]) == pytest.approx(4, rel=0.02)


def lost_from(log: EventLog, worked: int, lost: int) -> None:
    """Append an inference of `worked` batches, then `lost` ones whose forward never came."""
    now = 0.0
    for number in range(worked + lost):
        fetch(log, now, now + 0.002, 0, 4.0)
        if number < worked:
            call(log, now + 0.002, now + 0.01, 4.0, graded=False)
        now += 0.01


@pytest.mark.parametrize(("worked", "lost"), [(60, 60), (20, 100), (100, 20)])
def test_a_batch_that_no_module_was_called_for_is_no_unit(worked, lost) -> None:
    """The copy to the card may have failed, and the program gone on to the next batch."""
    log = log_with()
    lost_from(log, worked, lost)
    assert sum(detected(log).units) == pytest.approx(4 * worked, rel=0.05)


def ppo(log: EventLog, rounds: int, *, epochs: int) -> None:
    """Append rollouts of 32 calls of 8 samples, each trained on in batches of 64."""
    now = 0.0
    for _ in range(rounds):
        for _ in range(32):
            call(log, now, now + 0.001, 8.0, graded=False)
            now += 0.001
        for _ in range(4 * epochs):
            call(log, now, now + 0.002, 64.0)
            backward(log, now + 0.002, now + 0.004)
            now += 0.005
            update(log, now, now)


@pytest.mark.parametrize("epochs", [4, 10])
def test_rollouts_are_no_validation(epochs) -> None:
    """Each of the 256 samples is trained on in every epoch; their time is that of the steps."""
    log = log_with(loaders=0)
    ppo(log, 30, epochs=epochs)
    found = measured(log)
    round_s = 0.032 + 0.005 * 4 * epochs
    assert found.units_per_s() == pytest.approx(256 * epochs / round_s, rel=0.01)
    assert found.series.aside == []
    assert "in each epoch" in found.series.source


def test_a_validation_without_a_loader_is_no_rollout() -> None:
    """It comes after training, on as many samples as it likes."""
    log = log_with(loaders=0)
    ppo(log, 30, epochs=3)
    first = next(k for k, each in enumerate(log.calls) if each.graded)
    del log.calls[:first]
    found = detected(log)
    assert set(found.units[1:]) == {64}
    assert found.aside


def test_ranks_stop_together_a_moment_later() -> None:
    """After 0.6 s of steps of 10 ms."""
    log = log_with()
    now = train(log, 100)
    kind, count = stop_point(log, detected(log), now)
    assert kind == "step"
    assert count == pytest.approx(160, abs=3)


def test_ranks_without_updates_stop_at_a_call() -> None:
    log = log_with(loaders=0)
    for number in range(100):
        call(log, 0.01 * number, 0.01 * (number + 1), 4.0, graded=False)
    assert stop_point(log, detected(log), 1.0) == ("call", 162)


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
def test_a_number_that_jumps_back(values, found) -> None:
    assert jumps([float(value) for value in values]) == found
