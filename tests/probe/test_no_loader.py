"""Programs without a DataLoader: a finished item is counted, or the unit has another name."""

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import python

pytestmark = pytest.mark.slow
PLAN = MeasurePlan(measure_s=1.5, min_steps=10)
WITHIN = 0.03


@pytest.mark.parametrize(
    ("name", "counted", "batch"),
    [
        ("generation_by_hand", "generation", 4),
        ("generation_without_a_cache", "generation", 3),
        ("generate_method", "generation", 6),
        ("beam_search", "generation", 2),
        ("video_sampler", "sampler item", 1),
        ("ppo", "rollout", 64),
        ("ppo_of_many", "rollout", 64),
        ("dqn", "update", 16),
        ("actor_and_learner", "update", 64),
        ("actor_always_in_a_call", "update", 64),
        ("embedding_of_slices", "slice", 20),
    ],
)
def test_the_rate_is_that_of_the_programs_own_clock(tmp_path, name, counted, batch) -> None:
    outcome = python(tmp_path, "no_loader.py", name, plan=PLAN)
    reading = outcome.measured
    assert reading.counted == counted
    assert reading.effects.batch == batch
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)


@pytest.mark.parametrize("name", ["pipeline_over_a_generator", "server_loop"])
def test_rows_of_forwards_are_called_so(tmp_path, name) -> None:
    """A server may fill up its batch: not every row of a forward is an item."""
    reading = python(tmp_path, "no_loader.py", name, plan=PLAN).measured
    assert reading.unit == "row of a forward"
    assert reading.counted == "row of a forward"
    assert any("no item was seen to be finished" in note for note in reading.notes)
