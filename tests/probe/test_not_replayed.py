"""Compute alone is measured by going through a batch again, which not every program bears."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import MeasurePlan
from tests.probe.program import python

if TYPE_CHECKING:
    from pathlib import Path


def test_a_batch_that_cannot_be_replayed_spoils_nothing(tmp_path: Path) -> None:
    """The window is kept; that the model alone was not measured is a note."""
    plan = MeasurePlan(measure_s=0.4, min_steps=10, ceilings_workers=(0,), ceilings_s=0.2)
    reading = python(tmp_path, "ok_in_place.py", plan=plan).measured
    assert reading.units_per_s > 0
    assert "the program did not live through a replayed batch" in reading.notes
    assert reading.ceilings is None or reading.ceilings.compute_units_per_s is None
