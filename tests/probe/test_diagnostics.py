"""Diagnostics after the window: the loader alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import python

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")


def test_the_loader_alone_at_each_worker_count(tmp_path: Path) -> None:
    """A batch of its loop sleeps for longer than its loader takes to make several."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10, ceilings_workers=(0, 1), ceilings_s=0.3)
    outcome = python(tmp_path, "ok_train.py", "--workers", "1", plan=plan)
    reading = outcome.measured
    assert outcome.exit_code == 0
    assert [entry.workers for entry in reading.ceilings] == [0, 1]
    assert all(entry.units_per_s > reading.units_per_s for entry in reading.ceilings)
