"""What saves memory for time is taken off where the memory is there; quicker attention is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.simulator.search import formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.simulator.engine import RecordedEngine

TEXT = "lr: 0.1\nbatch_size: 4\ngradient_checkpointing: true\n"
SLOWER = {"gradient_checkpointing": 0.6}


def training(**more: Any) -> RecordedEngine:
    """One whose activations are computed twice, which costs time."""
    return on_formula(load_s=1e-6, step_kind="optimizer step", **{"flags": SLOWER, **more})


def test_checkpointing_is_taken_off_where_the_memory_is_there(tmp_path: Path) -> None:
    """The results are the same, so that it is written once it is proven."""
    search = formula_search(tmp_path, training(), TEXT)
    assert search.values["gradient_checkpointing"] is False


@pytest.mark.parametrize(
    "more",
    [
        {"fails": lambda values, _: "gpu-oom" * (values["gradient_checkpointing"] is False)},
        {"flags": {"gradient_checkpointing": 1.0}},
    ],
)
def test_it_stays_where_the_memory_or_the_gain_is_not_there(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    """And the report says which."""
    search = formula_search(tmp_path, training(**more), TEXT)
    assert "gradient_checkpointing" not in search.values
    assert search.decisions["gradient_checkpointing"].outcome == "kept"


@pytest.mark.parametrize(("guard", "asked"), [({"numeric-tolerance": "2%"}, True), ({}, False)])
def test_plain_attention_is_set_against_that_of_torch(
    tmp_path: Path, guard: dict[str, Any], asked: bool
) -> None:
    """It rounds otherwise, so only where the user declared a tolerance."""
    text = "lr: 0.1\nmodel:\n  attn_implementation: eager\n"
    search = formula_search(tmp_path, training(), text, workload=guard)
    tried = {c.new for a in search.lab.attempts for c in a.request.variant.candidate.changes}
    assert ("sdpa" in tried) is asked
    assert search.decisions["attn_implementation"].outcome == ("kept" if asked else "listed")


def test_what_computes_nothing_twice_is_left(tmp_path: Path) -> None:
    """A flag of such a name may load a checkpoint."""
    engine = on_formula(load_s=1e-6, step_kind="optimizer step", observed={"recomputes": False})
    search = formula_search(tmp_path, engine, TEXT)
    assert (
        "Nothing was seen to be computed twice" in search.decisions["gradient_checkpointing"].reason
    )
    moved = {c.name for a in search.lab.attempts for c in a.request.variant.candidate.changes}
    assert "gradient_checkpointing" not in moved
