"""Batches of items of like length: what pays most for text, and the user's to decide."""

from pathlib import Path
from typing import Any

import pytest

from advisor import config as documents, knobs
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

TEXT = "lr: 0.1\nbatch_size: 4\naccumulation_steps: 8\nnum_workers: 2\ngroup_by_length: false\n"


def of_text(folder: Path, padded: float | None, gain: float, **more: Any) -> FormulaSearch:
    """A training on texts, of whose positions a share is padding."""
    engine = on_formula(
        load_s=1e-6,
        launch_s=1e-4,
        unit_s=0.01,
        step_kind="optimizer step",
        flags={"group_by_length": gain},
        observed={"trains": "optimizer", "padding_share": padded},
    )
    return formula_search(folder, engine, TEXT, **more)


def test_where_padding_fills_the_batches_items_of_like_length_are_suggested(tmp_path) -> None:
    """With its line and its proven gain. An update has other items together: it is not written."""
    search = of_text(tmp_path, 0.46, 1.4)
    assert not search.winner.changes
    (found,) = search.state.suggestions
    assert found.title == "group_by_length: False to True"
    assert found.outcome is not None
    assert found.outcome.interval(search.context.objective).low > 1.3
    assert "an update other ones together" in found.reason
    assert search.decisions["group_by_length"].outcome == "advised"


@pytest.mark.parametrize("padded", [None, 0.0, 0.05])
def test_without_padding_no_trial_is_spent_on_it(tmp_path, padded) -> None:
    search = of_text(tmp_path, padded, 1.4)
    moved = {c.path for a in search.executor.attempts for c in a.request.variant.candidate.changes}
    assert "group_by_length" not in moved
    assert search.decisions["group_by_length"].cause == "no-need"


def test_a_budget_without_room_for_it_says_what_it_saves(tmp_path) -> None:
    engine = on_formula(
        process_s=30.0,
        load_s=1e-6,
        launch_s=0.05,
        step_kind="optimizer step",
        flags={"group_by_length": 1.4},
        observed={"trains": "optimizer", "padding_share": 0.46},
    )
    search = formula_search(tmp_path, engine, TEXT, budget_s=240.0)
    decision = search.decisions["group_by_length"]
    assert decision.outcome == "skipped"
    assert decision.reason.startswith("Padding fills 46 % of the positions; `True` saves most")


def test_the_proof_of_a_small_gain_leaves_time_for_items_of_like_length(tmp_path) -> None:
    """A batch that gains 5 % took all rounds that its noise asks for."""
    engine = on_formula(
        process_s=6.0,
        load_s=1e-6,
        launch_s=0.0025,
        unit_s=0.01,
        noise=0.02,
        seed=3,
        step_kind="optimizer step",
        flags={"group_by_length": 1.4},
        observed={"trains": "optimizer", "padding_share": 0.46},
    )
    search = formula_search(tmp_path, engine, TEXT, budget_s=240.0)
    assert search.state.confirmations
    assert search.decisions["group_by_length"].outcome == "advised"


@pytest.mark.parametrize("budget_s", range(180, 280, 10))
def test_where_no_time_is_left_to_prove_it_one_run_still_tells(tmp_path, budget_s) -> None:
    """Two rounds had been kept beside it, which would have proven nothing."""
    engine = on_formula(
        process_s=14.0,
        load_s=1e-6,
        launch_s=0.01,
        unit_s=0.005,
        noise=0.03,
        seed=1,
        step_kind="optimizer step",
        flags={"group_by_length": 1.3},
        observed={"trains": "optimizer", "padding_share": 0.46},
    )
    search = formula_search(tmp_path, engine, TEXT, budget_s=float(budget_s))
    untried = search.decisions["group_by_length"].cause == "out-of-budget"
    assert not untried or search.executor.budget.remaining_s < 14.0


def test_packing_is_named_where_padding_fills_the_batches_and_never_tried(tmp_path) -> None:
    """It joins texts: what an update sees is another thing, and the user's to decide."""
    engine = on_formula(
        step_kind="optimizer step", observed={"trains": "optimizer", "padding_share": 0.46}
    )
    search = formula_search(tmp_path, engine, "lr: 0.1\nbatch_size: 4\npacking: false\n")
    decision = search.decisions["packing"]
    assert decision.cause == "never-alone"
    assert decision.reason.startswith("Padding fills 46 % of the positions")
    assert decision.trials == ()


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("group_by_length: false", True),
        ("train_sampling_strategy: random", True),
        ("group_by_modality_length: true", True),
        ("sortish_sampler: false", True),
        ("bucket_by_length: false", True),
        ("use_bucketing: 0", True),
        ("length_column_name: length", False),
        ("bucket_cap_mb: 25", False),
        ("enable_bucket: true", False),
        ("gcs_bucket: runs", False),
        ("sampling_strategy: top_p", False),
    ],
)
def test_settings_of_that_purpose_are_known_by_their_names(line, is_one) -> None:
    found = knobs.find(documents.parse(f"lr: 0.1\n{line}\n".encode(), "yaml", "train.yaml"))
    assert ("length_grouping" in [knob.kind for knob in found.knobs]) is is_one
