"""Decisions rest on runs of their own knob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.configs import TEST

if TYPE_CHECKING:
    from pathlib import Path

BOTH = "batch_size: 1\nnum_workers: 0\n"


def test_a_trial_that_moved_two_knobs_is_evidence_of_both(tmp_path: Path) -> None:
    search = formula_search(tmp_path, on_formula(), BOTH, workload=TEST)
    both = {t.id for t in search.asked("search") if len(t.request.knobs) > 1}
    assert both
    for name in ("batch_size", "num_workers"):
        assert both <= set(search.decisions[name].trials)


def test_a_budget_too_small_is_told_after_one_process(tmp_path: Path) -> None:
    engine = on_formula(load_s=1e-6, process_s=88.0, startup_s=5.0)
    search = formula_search(tmp_path, engine, BOTH, workload=TEST, budget_s=240.0)
    assert search.stop.reason == "budget-too-small"
    assert len(search.lab.attempts) == 1
    assert search.state.originals
