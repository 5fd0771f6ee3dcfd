"""The operations of a step: counted on the program's own, changing nothing; on simulated cards."""

import pytest

from advisor.model import MeasurePlan
from tests.gpu.conftest import Run
from tests.probe.program import ProbedRun

CONVOLUTION = 2 * 4 * 4 * 64 * 27
"""2 x samples x outputs x positions x inputs: forward, and once more for the weight's gradient."""
HEAD = 2 * 4 * 256 * 2
"""Forward, and once more for each of two gradients."""
INFERENCE = CONVOLUTION + HEAD
TRAINING = 2 * CONVOLUTION + 3 * HEAD
PARTS = MeasurePlan(measure_s=0.3, min_steps=5, ceilings_workers=(0,), ceilings_s=0.1)


@pytest.fixture(scope="module")
def trained(on_cards: Run) -> ProbedRun:
    """A training whose parts were measured after its window."""
    return on_cards("--train", program="gpu_flops.py", plan=PARTS).outcome


def test_the_operations_of_a_step_are_those_counted_by_hand(on_cards, trained) -> None:
    """Forwards and backwards of one whole step, whatever it is made of."""
    assert trained.measured.flops.per_step == TRAINING
    assert trained.measured.flops.why is None
    for words, expected in (("", INFERENCE), ("--train --accumulate 3", 3 * TRAINING)):
        found = on_cards(*words.split(), program="gpu_flops.py", plan=PARTS).outcome.measured
        assert found.flops.per_step == expected


def test_the_count_changes_nothing(on_cards, trained) -> None:
    """Losses, statistics of the norm, weights and the generator of random numbers are those of a
    run in which nothing was counted, past the step that was counted too."""
    lines = trained.stdout.splitlines()
    plan = MeasurePlan(mode="whole")
    plain = on_cards("--train", "--steps", str(len(lines)), program="gpu_flops.py", plan=plan)
    assert plain.outcome.measured.flops is None, "only a run that tells of its parts counts"
    assert len(lines) > PARTS.min_steps
    assert lines == plain.outcome.stdout.splitlines()[: len(lines)]


def test_memory_of_a_step_by_kind(trained) -> None:
    """The parameters and the gradients of all of them, and whatever else the card held."""
    found = trained.measured.footprint
    assert found.model >= found.gradients > 0
    assert found.activations > 0


@pytest.mark.slow
def test_compiled_code_is_not_counted(on_cards) -> None:
    """It does not show its operations: no figure then, but why."""
    args = ("--train", "--compiled")
    found = on_cards(*args, program="gpu_flops.py", plan=PARTS).outcome.measured.flops
    assert found.per_step is None
    assert "compiled" in found.why
