"""The operations of a step: counted on the program's own, changing nothing; on simulated cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan

if TYPE_CHECKING:
    from tests.gpu.conftest import Run

CONVOLUTION = 2 * 4 * 4 * 64 * 27
"""2 x samples x outputs x positions x inputs: forward, and once more for the weight's gradient."""
HEAD = 2 * 4 * 256 * 2
"""Forward, and once more for each of two gradients."""
INFERENCE = CONVOLUTION + HEAD
TRAINING = 2 * CONVOLUTION + 3 * HEAD
PARTS = MeasurePlan(measure_s=0.3, min_steps=5, ceilings_workers=(0,), ceilings_s=0.1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", INFERENCE),
        ("--train", TRAINING),
        ("--train --accumulate 3", 3 * TRAINING),
    ],
)
def test_the_operations_of_a_step_are_those_counted_by_hand(
    words: str, expected: int, on_cards: Run
) -> None:
    """Forwards and backwards of one whole step, whatever it is made of."""
    reading = on_cards(*words.split(), program="gpu_flops.py", plan=PARTS).outcome.measured
    assert reading.flops is not None
    assert (reading.flops.per_step, reading.flops.why) == (expected, None)


def test_the_count_changes_nothing(on_cards: Run) -> None:
    """Losses, statistics of the norm, weights and the generator of random numbers are those of a
    run that nothing was counted in, past the step that was counted too."""
    counted = on_cards("--train", program="gpu_flops.py", plan=PARTS).outcome
    lines = counted.stdout.splitlines()
    args = ("--train", "--steps", str(len(lines)))
    plain = on_cards(*args, program="gpu_flops.py", plan=MeasurePlan(mode="whole")).outcome
    assert counted.measured.flops is not None
    assert counted.measured.flops.per_step
    assert len(lines) > PARTS.min_steps
    assert lines == plain.stdout.splitlines()[: len(lines)]


def test_memory_of_a_step_by_kind(on_cards: Run) -> None:
    """The parameters and the gradients of all of them, and whatever else the card held."""
    found = on_cards("--train", program="gpu_flops.py", plan=PARTS).outcome.measured.footprint
    assert found is not None
    assert found.model >= found.gradients > 0
    assert found.activations > 0


@pytest.mark.slow
def test_compiled_code_is_not_counted(on_cards: Run) -> None:
    """It does not show its operations: no figure then, but why."""
    args = ("--train", "--compiled")
    found = on_cards(*args, program="gpu_flops.py", plan=PARTS).outcome.measured.flops
    assert found is not None
    assert found.per_step is None
    assert found.why is not None
    assert "compiled" in found.why


def test_a_search_run_counts_nothing(on_cards: Run) -> None:
    """Only those that tell of the parts, once the window is kept."""
    plan = MeasurePlan(measure_s=0.3, min_steps=5)
    assert on_cards("--train", program="gpu_flops.py", plan=plan).outcome.measured.flops is None
