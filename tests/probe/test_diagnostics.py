"""Diagnostics after the window: the parts alone, and one step's memory and operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import PROGRAMS, python, with_torch
from tests.truth import steps

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

PLAN = MeasurePlan(measure_s=0.4, min_steps=10, ceilings_workers=(0,), ceilings_s=0.2)
FLOAT = 4
PARAMETERS = (256 * 512 + 512) + (512 * 512 + 512) + 2 * 512 + (512 + 1)


def test_ceilings_of_training(tmp_path: Path) -> None:
    """Compute alone by replay, the program's own loader alone at each worker count."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10, ceilings_workers=(0, 1), ceilings_s=0.3)
    outcome = python(tmp_path, "ok_train.py", "--workers", "1", plan=plan)
    reading = outcome.measured
    assert outcome.exit_code == 0
    assert reading.ceilings is not None
    assert reading.ceilings.compute_units_per_s is not None
    # The program's clock sees replayed steps too: of 0.3 s before its stop, and the one that ends.
    ages = [steps(outcome.truth_file)[-1][0] - time for time, _ in steps(outcome.truth_file)]
    replayed = [age for age in ages if age >= plan.ceilings_s][-1]
    rate, one = 16 * sum(age < replayed for age in ages) / replayed, 16 / replayed
    assert reading.ceilings.compute_units_per_s == pytest.approx(rate, abs=2 * one)
    assert [entry.workers for entry in reading.ceilings.loader] == [0, 1]
    # A batch of its loop sleeps for longer than its loader takes to make several.
    assert all(entry.units_per_s > reading.units_per_s for entry in reading.ceilings.loader)


def test_ceilings_of_a_sampler(tmp_path: Path) -> None:
    """No batch is replayed for minutes: compute alone is the window without its waits."""
    reading = python(tmp_path, "ok_sampler.py", "40", "2", plan=PLAN).measured
    assert reading.ceilings is not None
    assert reading.ceilings.compute_units_per_s is not None
    assert reading.ceilings.compute_units_per_s >= reading.units_per_s
    assert len(reading.ceilings.loader) == 1
    assert reading.footprint is None


def test_a_batch_that_cannot_be_replayed_spoils_nothing(tmp_path: Path) -> None:
    """The window is kept; that the model alone was not measured is a note."""
    reading = python(tmp_path, "ok_in_place.py", plan=PLAN).measured
    assert reading.units_per_s > 0
    assert "the program did not live through a replayed batch" in reading.notes
    assert reading.ceilings is None or reading.ceilings.compute_units_per_s is None


@pytest.mark.parametrize("batch", [256, 1024])
def test_memory_by_kind_adds_up_to_the_peak_of_the_allocator(tmp_path: Path, batch: int) -> None:
    """Model, gradients and Adam's two moments to the byte; the sum within 2 % of the profiler's."""
    found = python(tmp_path, "ok_memory.py", str(batch), plan=PLAN).measured.footprint
    assert found is not None
    assert (found.model, found.gradients) == (FLOAT * PARAMETERS, FLOAT * PARAMETERS)
    counters = 8 * FLOAT  # Adam counts its steps, one number a parameter
    assert found.optimizer == 2 * FLOAT * PARAMETERS + counters
    own = with_torch().call(str(PROGRAMS / "ok_memory.py"), str(batch), "own", cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    assert found.whole == pytest.approx(int(own.stdout), rel=0.02)
