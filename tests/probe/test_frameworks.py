"""What a framework does inside the forward is seen from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.probe.program import python

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.frameworks
def test_autocast_inside_the_forward(tmp_path: Path) -> None:
    """accelerate wraps the forward; the leaves' outputs tell the dtype of compute."""
    pytest.importorskip("accelerate")
    outcome = python(tmp_path, "ok_accelerate.py")
    reading = outcome.measured
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.03)
    assert reading.effects.accumulation == 2
    assert reading.effects.autocast_dtype == "bfloat16"
    assert reading.effects.dtype == "bfloat16"
