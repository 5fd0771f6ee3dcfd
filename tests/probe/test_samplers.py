"""Iterative samplers: how many forwards make a unit, and where one ends and the next begins."""

from __future__ import annotations

import pytest
import torch
from advisor.probe.log import Log, Root, Rota

from advisor.probe import cycles, steps, window
from tests.probe.logs import PLAN, log_with, measured, train


def inner_log(outer: int, many: int, *, running: int = 0) -> Log:
    """A root called `outer` times that calls another network `many` times; then once more, up to
    its `running`th call."""
    log = log_with(loaders=0)
    network = Root(torch.nn.Linear(1, 1), 1, 2)
    log.roots.append(network)
    log.roots[0].inners = [network]
    now = 0.0
    for number in range(outer + bool(running)):
        start = now
        for _ in range(many if number < outer else running):
            log.inners.append((now + 0.001, now + 0.009, 1, 6.0, False))
            now += 0.01
        if number < outer:
            log.forwards.append((start, now, 0, 3.0, False))
        else:
            log.running = (start, 0)
    return log


def test_a_loop_within_a_roots_forward() -> None:
    """The network's calls are the forwards; the root's input tells the items."""
    found = measured(inner_log(5, 40, running=10))
    assert found.ledger.forwards_per_unit == 40
    assert found.ledger.batch == 3
    assert found.units_per_s() == pytest.approx(3 / 0.4, rel=0.01)
    assert sum(window.shares(inner_log(5, 40, running=10), found).values()) == pytest.approx(1)


def test_a_loop_within_the_first_forward_waits_for_its_end() -> None:
    """How many forwards it takes is not known before; unless the plan knows."""
    log = inner_log(0, 40, running=200)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert window.find(log, ledger, PLAN)[1] is not None
    found = measured(log, {**PLAN, "forwards_per_unit": 1000.0})
    assert found.units_per_s() == pytest.approx(6 / 10, rel=0.01)


def test_calls_within_the_first_forward_are_no_whole_steps() -> None:
    """Nor is anything, in a program with an optimizer, before its update."""
    log = inner_log(0, 40, running=200)
    assert (log.steps(), log.whole_steps(built=False)) == (200, 0)
    train(log, 5)
    assert log.whole_steps(built=True) == 5
    log.opts.clear()
    assert (log.whole_steps(built=False), log.whole_steps(built=True)) == (5, 0)


def sampler(log: Log, batches: int, forwards: int, *, batch: float, pause: float) -> float:
    now = 0.0
    for _ in range(batches):
        log.nexts.append((now, now + pause, 0, batch, True))
        now += pause
        for _ in range(forwards):
            log.forwards.append((now, now + 0.01, 0, batch, False))
            now += 0.01
    return now


def test_a_sampler_pays_for_its_pauses() -> None:
    """Stopped inside a batch, it knows the pause from the batch before."""
    log = log_with()
    sampler(log, 3, 100, batch=2, pause=0.5)
    found = measured(log, {"measure_s": 0.4, "min_steps": 10})
    assert found.ledger.forwards_per_unit == 100
    assert found.units_per_s() == pytest.approx(2 / 1.5, rel=0.01)


def test_a_sampler_waits_for_a_whole_batch() -> None:
    """Unless the forwards per unit are known."""
    log = log_with()
    sampler(log, 1, 400, batch=2, pause=0.1)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert window.find(log, ledger, PLAN)[1] is not None
    found = measured(log, {**PLAN, "forwards_per_unit": 1000.0})
    assert found.units_per_s() == pytest.approx(2 / 10, rel=0.01)


def test_forwards_per_unit_do_not_depend_on_how_a_batch_is_split() -> None:
    """Four items one by one, or all at once with the guidance doubled: each has its own share."""
    split, doubled = log_with(), log_with()
    now = 0.0
    for _ in range(8):
        split.nexts.append((now, now, 0, 4.0, True))
        doubled.nexts.append((now, now, 0, 4.0, True))
        for number in range(80):
            split.forwards.append((now, now + 0.01, 0, 1.0, False))
            if number % 4 == 0:
                doubled.forwards.append((now, now + 0.01, 0, 8.0, False))
            now += 0.01
    assert measured(split).ledger.forwards_per_unit == 20
    assert measured(doubled).ledger.forwards_per_unit == 20


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
    assert cycles.jumps([float(value) for value in values]) == found


def test_loops_with_few_forwards_are_watched_now_and_then() -> None:
    """All at first, then one batch in sixteen; a sampler's forwards always."""
    log, rota = log_with(), Rota()
    few = []
    for _ in range(96):
        few.append(rota.turn(0, log, samples=False))
        log.forwards.append((0.0, 0.0, 0, 1.0, True))
    assert all(few[:31])
    assert sum(few[32:]) == 4
    assert all(rota.turn(0, log, samples=True) for _ in range(32))
    many = Rota()
    log.forwards.clear()
    for _ in range(96):
        assert many.turn(0, log, samples=False)
        log.forwards.extend([(0.0, 0.0, 0, 1.0, True)] * 5)
