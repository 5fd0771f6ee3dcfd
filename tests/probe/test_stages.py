"""Networks that take turns: each with its share of the window, its calls, and its items a call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.probe.program import WHOLE, python

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

POINTS = 0.08
"""Shares are of a part of the window, and the machine may be of others in the rest."""


def shares_of(calls: list[tuple[str, float, float]], start: float, end: float) -> dict[str, float]:
    """Share of the time from `start` to `end` in each network's calls."""
    spent: dict[str, float] = {}
    for name, enter, exit_ in calls:
        inside = max(0.0, min(exit_, end) - max(enter, start))
        spent[name] = spent.get(name, 0.0) + inside / (end - start)
    return spent


@pytest.mark.parametrize("batch", [1, 4])
def test_each_network_has_its_share_of_the_time(tmp_path: Path, batch: int) -> None:
    """Within some points of the program's own clock; only the first one is called in batches."""
    outcome = python(tmp_path, "ok_stages.py", str(batch), str(80 // batch), plan=WHOLE)
    reading = outcome.measured
    own = shares_of(ast.literal_eval(outcome.stdout), reading.window_start, reading.window_end)
    assert [stage.name for stage in reading.stages] == ["Finder", "Painter", "Shader"]
    for stage in reading.stages:
        assert stage.share == pytest.approx(own[stage.name], abs=POINTS)
        assert "/ok_stages.py:" in (stage.site or "")
    finder, *others = reading.stages
    assert (finder.batch, finder.calls_per_unit) == (batch, pytest.approx(1 / batch, rel=0.05))
    for other in others:
        assert (other.batch, other.calls_per_unit) == (1, pytest.approx(1, rel=0.05))
    assert reading.effects.batch == batch
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.05)
