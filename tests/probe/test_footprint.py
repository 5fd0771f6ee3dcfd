"""What a training step holds: by the tensors' own sizes, and as much as the allocator gave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import PROGRAMS, python, with_torch

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

PLAN = MeasurePlan(measure_s=0.3, min_steps=5, ceilings_workers=(0,), ceilings_s=0.1)
WITHIN = 0.02
FLOAT = 4
PARAMETERS = (256 * 512 + 512) + (512 * 512 + 512) + 2 * 512 + (512 + 1)


@pytest.mark.parametrize("batch", [256, 1024])
def test_the_parts_are_exact_and_add_up_to_the_peak_of_the_allocator(
    tmp_path: Path, batch: int
) -> None:
    """Model and Adam's two moments to the byte; the sum within 2 % of the profiler's. A small batch
    is fullest in the update, when all gradients are there; a large one in the backward pass, when
    some are, and storages lie where gradients will."""
    found = python(tmp_path, "ok_memory.py", str(batch), plan=PLAN).measured.footprint
    assert found is not None
    assert found.model == FLOAT * PARAMETERS
    if batch == 256:
        assert found.gradients == FLOAT * PARAMETERS
    assert found.gradients <= FLOAT * PARAMETERS
    counters = 8 * FLOAT  # Adam counts its steps, one number a parameter
    assert found.optimizer == 2 * FLOAT * PARAMETERS + counters
    assert found.activations >= batch * 256 * FLOAT
    own = with_torch().call(str(PROGRAMS / "ok_memory.py"), str(batch), "own", cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    assert found.whole == pytest.approx(int(own.stdout), rel=WITHIN)


def test_inference_has_no_such_parts(tmp_path: Path) -> None:
    assert python(tmp_path, "ok_stages.py", "1", "100000", plan=PLAN).measured.footprint is None
