"""Programs without a DataLoader: what is a sample, a token and a step, and when they end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import PLAN, python

if TYPE_CHECKING:
    from pathlib import Path

WITHIN = 0.02
BASELINE = MeasurePlan(
    measure_s=0.4, min_steps=8, whole_batches=1, ceilings_workers=(0, 1), ceilings_s=0.2
)


@pytest.mark.parametrize("kind", ["gpt", "lstm", "bigram"])
def test_samples_of_a_language_model(tmp_path: Path, kind: str) -> None:
    """6 rows of 10 tokens, whichever comes first, and beside hidden states of two layers; asked
    for as a baseline is, it ends by itself."""
    outcome = python(tmp_path, "own_language.py", kind, plan=BASELINE)
    reading = outcome.measured
    assert [record.state for record in outcome.records] == ["stopped"]
    assert reading.effects.batch == 6
    assert reading.unit == "sample"
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)
    assert reading.tokens_per_s == pytest.approx(10 * reading.units_per_s)


def test_a_validation_first_is_not_the_workload(tmp_path: Path) -> None:
    """With an optimizer built, forwards without gradients are waited out."""
    outcome = python(tmp_path, "own_language.py", "gpt", "4", "8", "torch", plan=BASELINE)
    reading = outcome.measured
    assert reading.step_kind == "optimizer step"
    assert reading.effects.batch == 4


def test_a_loader_that_another_thread_reads_is_not_waited_for(tmp_path: Path) -> None:
    """Its `__next__` takes nearly all the time of that thread, and none of the work's.

    The thread runs by fits and starts on a busy machine, and none of its batches is a skipped one.
    """
    outcome = python(tmp_path, "ok_background.py", plan=replace(PLAN, measure_s=1.0))
    reading = outcome.measured
    assert reading.effects.batch == 5
    assert reading.wait_share is None
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)


def test_items_of_a_quick_sampler_are_told_apart_while_steps_are_only_counted(
    tmp_path: Path,
) -> None:
    """Its pauses between items would count twice where no item's begin is seen."""
    outcome = python(tmp_path, "quick_sampler.py", plan=MeasurePlan(measure_s=1.0, min_steps=10))
    reading = outcome.measured
    assert reading.effects.forwards_per_unit == 12
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.02)
