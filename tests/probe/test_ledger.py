"""What one step is in a loop, and how many units it finished: only what was trained on counts."""

from __future__ import annotations

import pytest
from advisor.probe.log import EXHAUSTED, Log

from advisor.probe import steps, training, window
from tests.probe.logs import PLAN, log_with, measured, train


def infer(log: Log, batches: int, *, start: float, batch: float = 10.0, loader: int = 1) -> float:
    """Append forwards without gradient over another loader, to its end."""
    now = start
    for _ in range(batches):
        log.nexts.append((now, now + 0.001, loader, batch, True))
        log.forwards.append((now + 0.001, now + 0.003, 0, batch, False))
        now += 0.003
    log.nexts.append((now, now, loader, EXHAUSTED, True))
    return now


def test_training_counts_the_train_loader_only() -> None:
    """A sanity validation before, and one in between, is another loader's."""
    log = log_with(loaders=2)
    now = infer(log, 20, start=0.0)
    now = train(log, 100, start=now)
    now = infer(log, 20, start=now)
    train(log, 100, start=now)
    assert training.train_loaders(log)[0] == 0
    found = measured(log)
    assert found.ledger.batch == 4
    assert found.units_per_s() == pytest.approx(400.0)
    assert window.wait_share(log, found) == pytest.approx(0.2)


@pytest.mark.parametrize(("updates", "fed"), [(10, True), (200, False)])
def test_a_loader_feeds_a_training_that_goes_on_with_its_batches(updates: int, fed: bool) -> None:
    """Chunks of one batch may be many updates; after hundreds it was a validation of one batch."""
    log = log_with()
    now = 0.0
    for _ in range(10):
        now = train(log, 1, start=now, batch=64.0)
        for _ in range(updates - 1):
            log.forwards.append((now, now + 0.004, 0, 4.0, True))
            log.backwards.append((now + 0.004, now + 0.008, True))
            now += 0.008
            log.opts.append((now, now, 1))
    ledger = training.read(log)
    assert ledger is not None
    assert (ledger.loader == 0) == fed
    assert ledger.batch == (64.0 if fed else 4.0)


def test_accumulation_is_one_step() -> None:
    """Units of a step are those of all its batches."""
    log = log_with()
    train(log, 60, accumulate=4)
    found = measured(log)
    assert found.ledger.batches_per_step == 4
    assert found.seconds / found.count == pytest.approx(0.04)
    assert found.units_per_s() == pytest.approx(400.0)


SIZES = {"A": 4.0, "B": 12.0}


def loop(log: Log, pattern: str, times: int) -> None:
    """Append `times` rounds of events, a millisecond each: A and B load a batch of their loader,
    f is a forward of A's items, g one of two such batches, b a backward, s a step."""
    now = len(log.opts) * 1.0
    for _ in range(times):
        for event in pattern:
            now += 0.001
            if event in SIZES:
                loader = "AB".index(event)
                log.nexts.append((now, now + 0.0001, loader, SIZES[event], True))
            elif event in "fg":
                items = SIZES["A"] * (1 + (event == "g"))
                log.forwards.append((now, now + 0.0005, 0, items, True))
            elif event == "b":
                log.backwards.append((now, now + 0.0005, True))
            else:
                log.opts.append((now, now + 0.0005, 1))


@pytest.mark.parametrize(
    ("pattern", "units"),
    [
        ("Afbs", 4),
        ("AAfbs", 4),
        ("AfbsAAAfbs", 4),
        ("AAffbbs", 8),
        ("AAffbs", 8),
        ("AAgbs", 8),
        ("AfAfbs", 8),
        ("AfbAfbs", 8),
        ("AfbfbsAAfbfbs", 4),
        ("ABfbs", 4),
        ("ABffbs", 4),
        ("AfbsBfbs", 8),
        ("ABffbsAfbsAfbsAfbs", 4),
        ("AffbfbsA", 4),
    ],
    ids=[
        "plain",
        "every second one skipped",
        "some skipped",
        "gathered for two backwards",
        "gathered for one backward",
        "gathered into one forward",
        "losses summed",
        "accumulation",
        "two backwards a batch, some skipped",
        "zip",
        "zip, a forward for each",
        "two loaders in turn",
        "a second batch beside every fourth",
        "loaded ahead",
    ],
)
def test_batches_that_were_trained_on(pattern: str, units: float) -> None:
    """What was loaded and skipped is no unit; what was loaded ahead or gathered is."""
    log = log_with(loaders=2)
    loop(log, pattern, 100)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    whole = ledger.units[10:-10]
    assert sum(whole) / len(whole) == pytest.approx(units, rel=0.02)


def test_a_batch_loaded_ahead_over_short_epochs_is_none_skipped() -> None:
    """The first two batches of each epoch come in a row."""
    log = log_with()
    for _ in range(12):
        loop(log, "A", 1)
        loop(log, "Afbs", 19)
        loop(log, "fbs", 1)
        log.nexts.append((log.opts[-1][1], log.opts[-1][1], 0, EXHAUSTED, True))
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert sum(ledger.units) == pytest.approx(4 * 20 * 12, rel=0.01)


@pytest.mark.parametrize(
    ("pattern", "units"),
    [("fbs", 4), ("fbfbs", 8), ("fffbs", 4), ("gbs", 8)],
    ids=["plain", "accumulation", "three views of a batch", "larger batch"],
)
def test_units_without_a_loader(pattern: str, units: float) -> None:
    """One forward counts for each backward."""
    log = log_with(loaders=0)
    loop(log, pattern, 60)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert set(ledger.units[1:]) == {units}


def test_a_critic_and_its_generator_train_on_one_batch() -> None:
    """Backwards that another optimizer has applied are not counted again."""
    log = log_with(loaders=0)
    loop(log, "ffbsfbs", 60)
    log.opts = [(a, b, 1 + k % 2) for k, (a, b, _) in enumerate(log.opts)]
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert set(ledger.units) == {4}
    assert ledger.accumulation == 1


def test_a_closure_goes_through_one_batch() -> None:
    """Backwards within an optimizer's step are one."""
    log = log_with(loaders=0)
    loop(log, "fbfbfbs", 60)
    log.opts = [(end - 0.006, end, 1) for _, end, _ in log.opts]
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert set(ledger.units) == {4}
    assert ledger.accumulation == 1


def test_several_optimizers_are_one_loop() -> None:
    """Two networks trained in turn: the step is that of the one that steps most."""
    log = log_with()
    train(log, 100)
    log.opts = sorted([*log.opts, *((t - 0.001, t - 0.001, 2) for t, _, _ in log.opts[::5])])
    assert measured(log).units_per_s() == pytest.approx(400.0)
