"""What is measured from inside: how fast the compute is alone, and the loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import python
from tests.truth import steps

if TYPE_CHECKING:
    from pathlib import Path


def test_ceilings_of_training(tmp_path: Path) -> None:
    """Compute alone by replay, the program's own loader alone at each worker count."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10, ceilings_workers=(0, 1), ceilings_s=0.3)
    outcome = python(tmp_path, "ok_train.py", "--workers", "1", plan=plan)
    reading = outcome.measured
    assert outcome.exit_code == 0
    assert reading.ceilings is not None
    assert reading.ceilings.compute_units_per_s is not None
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.03)
    # The program tells of replayed steps too: of 0.3 s, before it is stopped, and the step in which
    # they end.
    ages = [steps(outcome.truth_file)[-1][0] - time for time, _ in steps(outcome.truth_file)]
    replayed = [age for age in ages if age >= plan.ceilings_s][-1]
    many = sum(age < replayed for age in ages)
    rate, one = 16 * many / replayed, 16 / replayed
    assert reading.ceilings.compute_units_per_s == pytest.approx(rate, abs=2 * one)
    assert [entry.workers for entry in reading.ceilings.loader] == [0, 1]
    # A batch of its loop sleeps for longer than its loader takes to make several.
    assert all(entry.units_per_s > reading.units_per_s for entry in reading.ceilings.loader)


def test_ceilings_of_a_sampler(tmp_path: Path) -> None:
    """No batch is replayed for minutes: compute alone is the window without its waits."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10, ceilings_workers=(0,), ceilings_s=0.2)
    reading = python(tmp_path, "ok_sampler.py", "40", "2", plan=plan).measured
    assert reading.ceilings is not None
    assert reading.ceilings.compute_units_per_s is not None
    assert reading.ceilings.compute_units_per_s >= reading.units_per_s
    assert len(reading.ceilings.loader) == 1
