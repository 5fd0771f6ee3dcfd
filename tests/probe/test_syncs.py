"""How often numbers go to the host: calls and steps of one span, the measured window."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from advisor.probe import syncs
from advisor.probe.ledger import FORWARD, LOADER, OPTIMIZER, Ledger
from advisor.probe.window import Window
from tests.probe.program import PROGRAMS, in_a_file

if TYPE_CHECKING:
    from pathlib import Path

EVALUATES_FIRST = """
import torch
from ok_descent import Descent
model = torch.nn.Linear(4, 1)
optimizer = Descent(model.parameters())
data = torch.utils.data.DataLoader(torch.randn(240, 4), batch_size=4)
for _ in range(50):
    evaluated = model(torch.randn(4, 4)).mean().item()
for x in data:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = loss.item()
    second = loss.item()
"""


class Loop:
    """Steps of a second each, which `item` gives numbers to the host in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(syncs, "clock", lambda: self.now)
        self.syncs = syncs.Syncs()
        self.bounds: list[float] = []

    def step(self, items: int) -> None:
        for _ in range(items):
            self.now += 0.5 / items
            self.syncs.note(sys._getframe(), "item", self.now, 0.001)
        self.now = float(int(self.now) + 1)
        self.bounds.append(self.now)

    def told(self, first: int, last: int, kind: str = OPTIMIZER) -> list[Any]:
        ledger = Ledger(kind, "")
        ledger.bounds = self.bounds
        found = Window(ledger, first, last)
        ledger.bounds = [bound + 0.3 for bound in self.bounds]  # as a device would move them
        return [each["per_step"] for each in self.syncs.told(found, waited=True)]


@pytest.mark.parametrize("kind", [OPTIMIZER, LOADER, FORWARD])
def test_calls_and_steps_are_of_the_window(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation before the first step, slow first steps and what follows are none of it."""
    loop = Loop(monkeypatch)
    for items in (40, 9, 9, *[2] * 20, 30):
        loop.step(items)
    assert loop.told(3, 22, kind) == [2.0]


def test_what_the_window_does_not_call_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    for items in (40, 1, *[0] * 20):
        loop.step(items)
    assert loop.told(3, 20) == []


def test_a_count_that_ended_early_is_of_the_steps_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are not counted are none in which nothing was called."""
    loop = Loop(monkeypatch)
    for items in (40, *[3] * 9):
        loop.step(items)
    loop.syncs.close()
    loop.bounds += [11.0 + number for number in range(20)]
    assert loop.told(5, 25) == [3.0]
    assert loop.told(15, 25) == [3.0]


def test_the_last_calls_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncs, "MOST_CALLS", 24)
    loop = Loop(monkeypatch)
    for _ in range(20):
        loop.step(2)
    assert loop.told(1, 19) == [2.0]


def test_an_evaluation_before_the_first_step_is_none_of_the_loops(tmp_path: Path) -> None:
    """Its forwards were steps when the counting began, and its calls the loop's."""
    outcome = in_a_file(tmp_path, EVALUATES_FIRST, env={"PYTHONPATH": str(PROGRAMS)})
    found = [(point.site.rpartition(":")[2], point.per_step) for point in outcome.measured.syncs]
    assert found == [("14", 1.0), ("15", 1.0)]
