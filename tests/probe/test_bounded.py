"""What the probe holds and what it reads does not grow with the length of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from advisor.probe.log import LIMIT, Log, Root

from advisor.probe import control, log, roots, steps, window
from advisor.probe.session import Session

STEP_S = 0.001
PLAN: dict[str, Any] = {"measure_s": 3.0, "min_steps": 10}


def trained(many: int, trim_every: int = 1000) -> Log:
    """A log of so many steps of a millisecond, without a loader."""
    found = Log()
    found.roots = [Root(torch.nn.Linear(1, 1), 0, 2)]
    for number in range(many):
        now = number * STEP_S
        found.forwards.append((now, now + 0.0004, 0, 4.0, True))
        found.backwards.append((now + 0.0004, now + 0.0008, True))
        found.opts.append((now + 0.0008, now + 0.0009, 1))
        if number % trim_every == 0:
            found.trim()
    return found


def test_what_is_held_is_bounded_and_what_was_counted_is_not_lost() -> None:
    """The lists end at one moment, so that what remains fits together."""
    many = 3 * LIMIT
    found = trained(many)
    assert all(len(getattr(found, kind)) <= LIMIT + 1000 for kind in log.KINDS)
    assert found.count("opts") == found.steps() == many
    assert found.first_time() == 0.0
    first = found.forwards[0][0]
    assert found.opts[0][0] - first == pytest.approx(0.0008)
    ledger = steps.read(found, PLAN)
    assert ledger is not None
    assert set(ledger.units) == {4.0}


def test_steps_too_quick_to_be_held_for_the_whole_window_fill_it_all_the_same() -> None:
    """More of them than are held would be needed for its seconds."""
    found = trained(2 * LIMIT)
    plan = {**PLAN, "measure_s": 1000.0}
    ledger = steps.read(found, plan)
    assert ledger is not None
    full, need = window.find(found, ledger, plan)
    assert need is None
    assert full is not None
    assert full.units_per_s() == pytest.approx(4.0 / STEP_S, rel=0.01)


def test_a_sampler_goes_on_as_it_began() -> None:
    """Of forwards that are no longer held the items are known by those that were seen."""
    found, now = Log(), 0.0
    found.roots = [Root(torch.nn.Conv2d(1, 1, 1), 0, 2)]
    for number in range(LIMIT + 2000):
        found.forwards.append((now, now + STEP_S, 0, 1.0, False))
        if number < 4096:
            found.roots[0].scalars.append({"0": float(-(number % 50))})
        now += STEP_S
    found.trim()
    ledger = steps.read(found, PLAN)
    assert ledger is not None
    assert ledger.forwards_per_unit == 50
    assert ledger.batch == 1


def test_a_look_that_costs_much_comes_less_often(tmp_path, monkeypatch) -> None:
    """However often more is missing, looking takes its small share of the time and no more."""
    session = Session({"records": str(tmp_path), "plan": PLAN})
    session.torch = torch
    clock = [100.0]
    looks = []

    def slow_look(_: Session, now: float) -> float:
        looks.append(now)
        clock[0] += 0.1
        return 0.02

    monkeypatch.setattr(control, "missing_s", slow_look)
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(control.time, name, lambda: clock[0])
    while clock[0] < 160.0:
        if clock[0] >= session.due:
            control.tick(session, clock[0])
        clock[0] += STEP_S
    assert 0.1 * len(looks) < 0.03 * 60.0
    assert session.errors == []


def test_a_bad_guess_is_made_anew(tmp_path, monkeypatch) -> None:
    """Two steps told nothing of the third, and the next look was to come in a year."""
    session = Session({"records": str(tmp_path), "plan": PLAN})
    session.torch = torch
    looks = []
    monkeypatch.setattr(control, "missing_s", lambda _, now: looks.append(now) or 3e7)
    now = 100.0
    monkeypatch.setattr(control.time, "perf_counter", lambda: now)
    while now < 130.0:
        if now >= session.due:
            control.tick(session, now)
        now += STEP_S
    assert len(looks) > 5


def test_no_warm_up_is_a_year_long_because_no_batch_was_seen_between_two_updates() -> None:
    found = Log()
    found.roots = [Root(torch.nn.Conv2d(1, 1, 1), 0, 2)]
    found.loaders = [{"workers": 0}]
    found.nexts = [(0.0, 0.1, 0, 4.0, True), (0.2, 0.3, 0, 4.0, True)]
    found.backwards = [(0.4, 0.5, False), (0.6, 0.7, False)]
    found.opts = [(0.5, 0.55, 1), (0.7, 0.75, 1)]
    ledger = steps.read(found, PLAN)
    assert ledger is not None
    _, need = window.find(found, ledger, PLAN)
    assert need is not None
    assert need.seconds < 60


def test_modules_made_anew_for_every_step_are_one_root(tmp_path) -> None:
    """Those that are gone leave nothing behind."""
    session = Session({"records": str(tmp_path), "plan": PLAN})
    session.torch = torch
    for _ in range(50):
        roots.known(session, torch.nn.Linear(3, 1))
        roots.known(session, torch.nn.MSELoss())
    kept = [torch.nn.Linear(3, 1) for _ in range(2)]
    assert len({id(roots.known(session, module)) for module in kept}) == 2
    assert len(session.log.roots) <= 4
