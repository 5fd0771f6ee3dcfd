"""Loops that a framework runs, measured against the program's own callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.probe.program import python

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 4])
def test_lightning(tmp_path: Path, accumulate: int) -> None:
    """The sanity validation's other batch size is kept apart."""
    pytest.importorskip("lightning")
    outcome = python(tmp_path, "ok_lightning.py", str(accumulate))
    _agrees(outcome, batch=16, accumulate=accumulate)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_transformers_trainer(tmp_path: Path, accumulate: int) -> None:
    """It fetches one batch ahead."""
    pytest.importorskip("transformers")
    outcome = python(tmp_path, "ok_trainer.py", str(accumulate), str(tmp_path / "own"))
    _agrees(outcome, batch=12, accumulate=accumulate)


@pytest.mark.slow
def test_accelerate(tmp_path: Path) -> None:
    """Its wrapped optimizer skips inner steps, and its autocast lives inside the forward."""
    pytest.importorskip("accelerate")
    outcome = python(tmp_path, "ok_accelerate.py")
    _agrees(outcome, batch=10, accumulate=2)
    assert outcome.measured.effects.autocast_dtype == "bfloat16"
    assert outcome.measured.effects.dtype == "bfloat16"


def _agrees(outcome, *, batch: int, accumulate: int) -> None:  # type: ignore[no-untyped-def]
    reading = outcome.measured
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.03)
    assert reading.effects.batch == batch
    assert reading.effects.accumulation == accumulate
    assert reading.step_kind == "optimizer step"
