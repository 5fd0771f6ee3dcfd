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


def test_steps_of_an_episode_are_no_samples_of_a_batch() -> None:
    """A forward for each action and one backward pass: which of them is the batch is unknown."""
    log = log_with(loaders=0)
    loop(log, "fffffffbs" + "fffffbs" + "fffffffffbs", 30)
    series = detected(log)
    assert series.unit == "step"
    assert set(series.units) == {1.0}


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
    assert found.loader == 0
    assert found.batch == 4
    assert found.accumulation == 1
    assert found.steps == 159
    assert set(found.units) == {4}
    assert len(found.aside) == 1
    assert found.aside[0].start == found.bounds[139]


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


def train_on(log: EventLog, batch: float, updates: int) -> None:
    """Append updates without a loader, of 5 ms each."""
    now = log.last_time() or 0.0
    for _ in range(updates):
        call(log, now, now + 0.002, batch)
        backward(log, now + 0.002, now + 0.004)
        now += 0.005
        update(log, now, now)


def ppo(log: EventLog, rounds: int, *, epochs: int, bootstrap: bool = False) -> None:
    """Append rollouts of 32 calls of 8 samples, each trained on in batches of 64."""
    for _ in range(rounds):
        now = log.last_time() or 0.0
        for _ in range(32 + bootstrap):
            call(log, now, now + 0.001, 8.0, graded=False)
            now += 0.001
        train_on(log, 64.0, 4 * epochs)


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("epochs", [1, 4, 10])
def test_a_rollout_with_its_updates_is_one_cycle_of_environment_steps(epochs, bootstrap) -> None:
    """However often its 256 samples are trained on, and with or without a last value's call."""
    log = log_with(loaders=0)
    ppo(log, 30, epochs=epochs, bootstrap=bootstrap)
    found = measured(log)
    round_s = 0.032 + 0.001 * bootstrap + 0.005 * 4 * epochs
    assert found.units_per_s() == pytest.approx(256 / round_s, rel=0.01)
    assert found.series.aside == []
    assert found.series.unit == "environment step"
    assert {found.first, found.last} <= set(found.series.marks)


@pytest.mark.parametrize(("rows", "fed"), [(64.0, False), (8.0, True)])
def test_a_validation_before_each_part_of_a_training_is_no_rollout(rows, fed) -> None:
    """It has the rows of the training, or a loader, though the training be ten times as long."""
    log = log_with(loaders=0)
    for _ in range(5):
        now = log.last_time() or 0.0
        for _ in range(20):
            if fed:
                fetch(log, now, now, 0, rows)
            call(log, now, now + 0.001, rows, graded=False)
            now += 0.001
        train_on(log, 64.0, int(10 * 20 * rows / 64))
    found = detected(log)
    assert not found.undecided
    assert found.counted == "update"
    assert len(found.aside) == 5


@pytest.mark.parametrize("same", [True, False])
def test_where_environments_are_as_many_as_a_batch_has_rows_the_rows_tell(same) -> None:
    """A rollout of 8 calls of 64 rows, trained on four times; a validation has rows of its own."""
    log = log_with(loaders=0)
    for _ in range(20):
        now, first = log.last_time() or 0.0, len(log.calls)
        for _ in range(8):
            call(log, now, now + 0.001, 64.0, graded=False)
            now += 0.001
        train_on(log, 64.0, 4 * 8)
        for at, each in enumerate(log.calls[first:]):
            part = at % 8 if same else at
            log.rows[each.end] = tuple(range(64 * part, 64 * part + 64))
    found = detected(log)
    assert found.counted == ("rollout" if same else "update")


def test_a_learner_is_no_window_before_its_second_rollout() -> None:
    """Calls without gradients before the first update may be a rollout, or a validation."""
    log = log_with(loaders=0)
    ppo(log, 1, epochs=10)
    assert detected(log).undecided
    train_on(log, 64.0, 3000)
    assert not detected(log).undecided


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


def forwards(
    log: EventLog, given: list[dict[str, float]], *, items: float = 4.0, shape: bool = False
) -> None:
    """Append calls of 10 ms without a loader, with what each was given."""
    for number, numbers in enumerate(given):
        call(log, 0.01 * number, 0.01 * (number + 1), items, graded=False)
        log.numbers.setdefault(0, []).append(numbers)
    log.modules = {0: replace(log.modules[0], same_shape=shape)}


def lengths(*values: int, name: str = "ids.length") -> list[dict[str, float]]:
    return [{name: float(value)} for value in values]


def written(*tokens: int) -> dict[str, list[dict[str, float]]]:
    """Generations of so many tokens each, as their calls show them."""
    alone = [{"ids.length": 1.0} for _ in range(sum(tokens))]
    return {
        "prompt, then tokens": lengths(
            *(9 * (k == 0) or 1 for many in tokens for k in range(many))
        ),
        "no cache": lengths(*(5 + k for many in tokens for k in range(many))),
        "a growing mask": [
            {**one, "mask.length": 5.0 + k}
            for one, k in zip(alone, [k for many in tokens for k in range(many)], strict=True)
        ],
        "a position": [
            {**one, "start_pos": float(k)}
            for one, k in zip(alone, [k for many in tokens for k in range(many)], strict=True)
        ],
    }


TOKENS = (20, 12, 35, 8, 50, 21, 30)


@pytest.mark.parametrize("how", written(1))
def test_a_generation_is_finished_when_the_next_one_begins(how) -> None:
    """Rows of a forward are no finished work: a stop token makes generations of any length."""
    log = log_with(loaders=0)
    forwards(log, written(*TOKENS)[how])
    series = detected(log)
    assert series.kind == "generation"
    assert series.units == [4.0] * (len(TOKENS) - 1)
    assert series.bounds == pytest.approx([0.01 * sum(TOKENS[:k]) for k in range(len(TOKENS))])
    log.ended = True
    assert len(detected(log).units) == len(TOKENS)
    assert detected(log).generation_calls == list(TOKENS)


def test_beams_and_rows_that_are_done_are_no_sequences() -> None:
    """A generation has as many as its first call; prompts that go in one by one are all of them."""
    rows = {"beams": [2, 8, 8, 8, 8], "done": [8, 8, 6, 3, 1], "one by one": [1, 1, 1, 3, 3, 3, 3]}
    found = {}
    for name, items in rows.items():
        log = log_with(loaders=0)
        prompts = items.index(max(items)) or 1
        forwards(log, lengths(*([9] * prompts + [1] * (len(items) - prompts)) * 6))
        log.calls = [
            each._replace(items=float(items[k % len(items)])) for k, each in enumerate(log.calls)
        ]
        found[name] = set(detected(log).units)
    assert found == {"beams": {2.0}, "done": {8.0}, "one by one": {3.0}}


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ([{"0.length": 12.0}] * 40, True),
        ([{"0.length": 12.0, "1": float(k)} for k in range(40)], False),
        (lengths(*(12 + 7 * k % 5 for k in range(40))), False),
        ([{"0.length": 900.0 - 5 * k, "1": 900.0 - 5 * k} for k in range(40)], False),
        ([{"0.length": 900.0 - 5 * k, "1": 900.0 - 5 * k} for k in range(40)], True),
        (lengths(*[1] * 40), False),
    ],
    ids=[
        "slices",
        "a counter of batches",
        "texts of any length",
        "longest first",
        "longest first, enhanced",
        "tokens alone",
    ],
)
def test_without_a_sign_the_unit_is_the_row_of_a_forward(given, shape) -> None:
    """Nothing shows that it is a finished item."""
    log = log_with(loaders=0)
    forwards(log, given, shape=shape)
    series = detected(log)
    assert series.unit == "row of a forward"
    assert series.counted == "row of a forward"


@pytest.mark.parametrize(
    ("values", "item"), [(range(1000, 0, -20), "52 s"), ([k / 50 for k in range(25)], "5 min")]
)
def test_the_end_of_a_samplers_first_item_is_waited_for(values, item) -> None:
    """Its forwards are no items, however long it takes; the limit that would hold one is told."""
    log = log_with(loaders=0)
    forwards(log, [{"1": float(value)} for value in values][:25], shape=True)
    length_s = 1.0 if item == "52 s" else 6.0
    log.calls = [
        each._replace(start=length_s * k, end=length_s * (k + 1))
        for k, each in enumerate(log.calls)
    ]
    series = detected(log)
    assert series.counted == "sampler item"
    assert find_window(log, series, PLAN)[0] is None or find_window(log, series, PLAN)[1] > 0
    assert f"one takes about {item}" in series.missing


def test_slices_of_one_array_are_its_items() -> None:
    """Each row is given once, pass for pass; one row after the other of a batch is not."""
    log = log_with(loaders=0)
    forwards(log, [{"0.row": 4.0 * (k % 10)} for k in range(40)])
    assert detected(log).counted == "slice"
    log = log_with(loaders=0)
    forwards(log, [{"0.row": 1.0 * k} for k in range(40)])
    assert detected(log).counted == "row of a forward"


def test_single_rows_taken_from_an_array_one_by_one_are_no_tokens() -> None:
    """A picture of 4,096 tiles, a tile at a time, was one sequence of 4,096 tokens.

    A larger batch of them was then counted in another way, and a gain of 17x was not tried.
    """
    log = log_with(loaders=0)
    forwards(log, [{"0.length": 1.0, "0.row": float(k % 20)} for k in range(40)])
    log.calls = [each._replace(items=1.0) for each in log.calls]
    assert detected(log).counted == "slice"


def test_a_loader_without_a_modules_call_has_loaded_samples() -> None:
    """Nothing shows that they were worked on."""
    log = log_with()
    for number in range(40):
        fetch(log, 0.01 * number, 0.01 * number + 0.002, 0, 4.0)
    assert detected(log).unit == "loaded sample"
