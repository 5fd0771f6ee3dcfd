"""A run tells of the phase that it ran: settings of another one are not judged by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.simulator.search import formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

LOADS: dict[str, Any] = {"load_s": 1e-6}
TRAINED: dict[str, Any] = {
    "observed": {"trains": "optimizer"},
    "step_kind": "optimizer step",
    **LOADS,
}


@pytest.mark.parametrize("name", ["validation_batch_size", "eval_batch_size", "test_batch_size"])
@pytest.mark.parametrize("train", ["batch_size: 4\n", ""])
def test_a_setting_of_evaluation_is_not_tried_while_the_program_trains(
    tmp_path: Path, name: str, train: str
) -> None:
    """No phase is declared; the steps that were seen are those of a training."""
    search = formula_search(tmp_path, on_formula(**TRAINED), f"{train}{name}: 16\nlr: 0.1\n")
    tried = {c.path for a in search.lab.attempts for c in a.request.variant.candidate.changes}
    assert name not in tried
    assert search.decisions[name].reason.startswith("Belongs to the ")
    assert "what was measured here is train" in search.decisions[name].reason


def test_a_setting_of_training_is_not_called_ignored_by_a_program_that_tests(
    tmp_path: Path,
) -> None:
    """It stands in for the one that is missing, and is not followed: the loader of a training was
    never seen."""
    engine = on_formula(coded={"batch_size": 4}, ignored=frozenset({"batch_size"}), **LOADS)
    text = "train:\n  batch_size: 16\n"
    search = formula_search(tmp_path, engine, text, workload={"phase": "test"})
    assert search.decisions["batch_size"].reason.startswith("Belongs to the ")


@pytest.mark.parametrize(
    ("seen", "told"), [(4, "the command line's own default --batch_size 4 is used"), (32, None)]
)
def test_an_argument_with_the_value_that_was_tried_overrides_nothing(
    tmp_path: Path, seen: int, told: str | None
) -> None:
    """What the arguments are is set against what was asked for, not against the config's own."""
    asked: dict[str, Any] = {
        "arguments": (("batch_size", seen),),
        "defaulted_arguments": ("batch_size",),
    }
    engine = on_formula(ignored=frozenset({"batch_size"}), observed=asked, **LOADS)
    search = formula_search(tmp_path, engine, "batch_size: 4\n")
    decision = search.decisions["batch_size"]
    assert decision.outcome == "ignored"
    assert (told or "") in decision.reason
