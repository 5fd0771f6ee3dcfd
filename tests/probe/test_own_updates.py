"""Whoever moves the parameters, a program that trains is known for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import python

if TYPE_CHECKING:
    from pathlib import Path

WITHIN = 0.02


@pytest.mark.parametrize(
    ("how", "sign", "accumulation"),
    [
        ("data", "backward", 1),
        ("class", "backward", 4),
        ("assigned", "backward", 1),
        ("grad", "gradients", 1),
        ("functional", "gradients", 1),
    ],
)
def test_updates_of_the_programs_own(
    tmp_path: Path, how: str, sign: str, accumulation: int
) -> None:
    """A step ends where gradients are taken up; its samples are those of the forwards."""
    outcome = python(tmp_path, "own_updates.py", how)
    reading = outcome.measured
    assert reading.step_kind == "training step"
    assert reading.effects.trains == sign
    assert reading.effects.batch == 6
    assert reading.effects.accumulation == accumulation
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)


def test_without_a_module_steps_are_counted(tmp_path: Path) -> None:
    """Nothing tells how many samples a step of plain tensors holds, and that is said."""
    outcome = python(tmp_path, "own_updates.py", "tensors")
    reading = outcome.measured
    assert reading.effects.trains == "gradients"
    assert reading.effects.batch is None
    assert reading.unit == "step"
    assert reading.units_per_s == pytest.approx(outcome.true_rate() / 6, rel=WITHIN)


@pytest.mark.parametrize(
    ("how", "sign"), [("evolution", "moved"), ("guided", "asked"), ("forward", None)]
)
def test_what_speaks_for_a_training_without_a_gradient_step(
    tmp_path: Path, how: str, sign: str | None
) -> None:
    """Parameters that move are training; gradients by what goes in may be; forwards are none."""
    reading = python(tmp_path, "own_updates.py", how).measured
    assert reading.effects.trains == sign
    assert reading.step_kind == "root forward"
    assert reading.effects.batch == 6


@pytest.mark.parametrize("how", ["data", "class", "functional"])
def test_updates_of_the_programs_own_over_a_loader(tmp_path: Path, how: str) -> None:
    """Samples are then those of the loader's batches."""
    outcome = python(tmp_path, "own_updates.py", how, "--loader", "0")
    reading = outcome.measured
    assert reading.step_kind == "training step"
    assert reading.effects.batch_asked == 6
    assert reading.wait_share is not None
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)


def test_a_step_of_gradients_asked_for_by_name_is_looked_at_after_the_window(
    tmp_path: Path,
) -> None:
    """No backward pass ends it: the program would run on for ever."""
    plan = MeasurePlan(measure_s=0.25, min_steps=10, ceilings_workers=(0,), ceilings_s=0.2)
    outcome = python(tmp_path, "own_updates.py", "grad", "--loader", "0", plan=plan)
    (record,) = outcome.records
    assert record.state == "stopped"
    assert record.flops is not None
