"""Two processes side by side: measured where the program has a setting for it, never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from advisor import objective
from advisor.report import sentences
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "batch_size: 1\nnum_gpus: 1\n"


def searched(
    folder: Path,
    text: str = CONFIG,
    objective: objective.Objective = objective.THROUGHPUT,
    **formula: Any,
) -> FormulaSearch:
    """Inference whose larger batch gains, and of which two processes have 1.6 times the rate."""
    engine = on_formula(**{"trains": False, "side_by_side": {2: 1.6}, **formula})
    phase = {"phase": "test"}
    return formula_search(folder, engine, text, workload=phase, gpu=False, objective=objective)


def test_two_processes_are_measured_on_top_of_what_was_proven_and_not_written(
    tmp_path: Path,
) -> None:
    search = searched(tmp_path)
    (found,) = [c for c in search.lab.comparisons if c.ab_test.purpose == "scaling"]
    interval = found.interval(search.facts.objective)
    assert interval is not None
    assert interval.estimate == pytest.approx(1.6)
    assert found.ab_test.before.variant.candidate.key == search.winner.key
    assert "num_gpus" not in search.values
    assert "batch_size" in search.values
    told = sentences.why(search.decisions["num_gpus"])
    assert told.startswith("Never tuned by itself: how many processes or cards")


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("batch_size: 1\n", {}),
        ("batch_size: 1\nnum_gpus: 2\n", {}),
        (CONFIG, {"step_kind": "optimizer step"}),
    ],
    ids=["no-setting", "several-already", "training"],
)
def test_nothing_is_asked_where_it_would_tell_nothing(
    tmp_path: Path, text: str, formula: dict[str, Any]
) -> None:
    """Without the setting, with several processes already, and of a training, whose batch they
    would multiply."""
    assert searched(tmp_path, text, **formula).asked("scaling") == []


def test_a_setting_that_starts_no_second_process_is_left_at_one_run(tmp_path: Path) -> None:
    """The program ignores it: there is nothing to compare."""
    search = searched(tmp_path, side_by_side={})
    assert len(search.asked("scaling")) == 1
    assert not [c for c in search.lab.comparisons if c.ab_test.purpose == "scaling"]


def test_two_are_set_side_by_side_only_where_the_rate_decides(tmp_path: Path) -> None:
    """How long many items take follows from rates; two have the latency of one."""
    assert searched(tmp_path, objective=objective.parse("latency")).asked("scaling") == []
