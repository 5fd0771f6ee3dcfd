"""The finder against real, labelled configs: the bars it must clear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.knob_finder import Score, score, table

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def result(corpus: Path) -> Score:
    found = score(corpus)
    print(table(found))
    return found


@pytest.mark.parametrize(
    "kind",
    [
        *("batch_size", "num_workers", "grad_accum", "pin_memory", "prefetch_factor"),
        *("persistent_workers", "learning_rate"),
    ],
)
def test_loader_and_optimizer_knobs_are_found_almost_without_error(
    result: Score, kind: str
) -> None:
    assert result.precision(kind) >= 0.97
    assert result.recall(kind) >= 0.97


def test_precision_knobs_are_found(result: Score) -> None:
    assert result.precision("precision") >= 0.95
    assert result.recall("precision") >= 0.90


@pytest.mark.parametrize("kind", ["timesteps", "sample_num", "image_size"])
def test_quality_knobs_are_found_precision_first(result: Score, kind: str) -> None:
    assert result.precision(kind) >= 0.90
    assert result.recall(kind) >= 0.70


def test_look_alikes_are_left_alone(result: Score) -> None:
    assert result.traps_hit <= 0.01 * result.traps


def test_phases_and_scopes_are_mostly_right(result: Score) -> None:
    assert result.phases[True] >= 0.95 * result.phases.total()
    assert result.scopes[True] >= 0.80 * result.scopes.total()
