"""Settings that gpu-advisor.toml keeps are tried by no stage, wherever their value stands."""

import pytest

from tests.support.simulator.search import formula_search, on_formula

TRAINING = "batch_size: 2\naccumulation_steps: 16\nnum_workers: 0\n"
TEST = "loader: {batch_size: 1, num_workers: 0}\n"


@pytest.mark.parametrize("name", ["loader.batch_size", "batch_size"])
def test_a_kept_setting_stays_and_the_others_are_tuned(tmp_path, name) -> None:
    """By its path, its last part, or its kind."""
    engine = on_formula(load_s=0.01, trains=False)
    free = formula_search(tmp_path / "free", engine, TEST)
    kept = formula_search(tmp_path / "kept", engine, TEST, workload={"keep": [name]})
    assert {"batch_size", "num_workers"} <= set(free.values)
    assert set(kept.values) == {"num_workers"}
    decision = kept.decisions["batch_size"]
    assert decision.cause == "frozen"
    assert decision.reason == "Left as it is: gpu-advisor.toml keeps it."


def test_nothing_moves_a_kept_setting_along(tmp_path) -> None:
    """An accumulation would follow the batch."""
    engine = on_formula(load_s=1e-6, launch_s=0.02, step_kind="optimizer step")
    free = formula_search(tmp_path / "free", engine, TRAINING)
    kept = formula_search(
        tmp_path / "kept", engine, TRAINING, workload={"keep": ["accumulation_steps"]}
    )
    assert {"batch_size", "accumulation_steps"} <= set(free.values)
    assert not {"batch_size", "accumulation_steps"} & set(kept.values)


def test_a_kept_value_of_the_code_is_not_suggested(tmp_path) -> None:
    engine = on_formula(load_s=0.01, trains=False, coded={"batch_size": 1, "num_workers": 0})
    kept = formula_search(tmp_path, engine, "lr: 0.1\n", workload={"keep": ["batch_size"]})
    moved = {
        change.kind
        for suggestion in kept.state.suggestions
        for change in suggestion.variant.candidate.changes
    }
    assert "batch_size" not in moved
