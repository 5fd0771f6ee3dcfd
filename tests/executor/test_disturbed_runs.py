"""On a machine that others use too: what they disturbed is run again, and said."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.composing import reported
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

TEXT = "batch_size: 1\nnum_workers: 0\n"
TEST = {"phase": "test"}


def busy_search(tmp_path: Path, others: Callable[[int], float] | None) -> FormulaSearch:
    """A batch that gains, while others hold `others(process)` CPUs and slow it down."""
    held = others and (lambda process, _: others(process))
    engine = on_formula(load_s=1e-6, held=held)
    return formula_search(tmp_path, engine, TEXT, workload=TEST)


def test_a_disturbed_run_is_run_again_before_it_is_believed(tmp_path) -> None:
    """The third process, a candidate, was slowed to a half; nothing rests on that."""
    quiet = busy_search(tmp_path, None)
    search = busy_search(tmp_path, lambda process: 1.0 if process == 2 else 0.0)
    disturbed, again = search.executor.attempts[2:4]
    assert disturbed.repeated
    assert not again.repeated
    assert disturbed.request.label == again.request.label
    assert search.values == quiet.values
    assert reported(search, tmp_path).load_note == ""


def test_a_disturbed_round_is_repeated_whole(tmp_path) -> None:
    """Both arms run again, never one alone; the rounds that were asked for are had."""
    quiet = busy_search(tmp_path, None)
    first = next(n for n, a in enumerate(quiet.executor.attempts) if a.request.purpose == "confirm")
    search = busy_search(tmp_path, lambda process: 1.0 if process == first + 3 else 0.0)
    proof = search.state.confirmations[0]
    assert [each.contended is None for each in proof.rounds] == [True, False] + [True] * 5
    assert len(search.asked("confirm")) == len(quiet.asked("confirm")) + 2
    assert len(proof.counted) == len(quiet.state.confirmations[0].counted) == 6
    assert proof.interval(search.context.objective) == quiet.state.confirmations[0].interval(
        quiet.context.objective
    )


def test_a_machine_that_stays_busy_still_gives_an_answer_that_says_so(tmp_path) -> None:
    """Rounds whose arms were disturbed alike are counted, and the first lines name who it was."""
    search = busy_search(tmp_path, lambda _: 1.0)
    assert search.values["batch_size"] > 1
    proof = search.state.confirmations[-1]
    assert proof.used_contended_rounds
    report = reported(search, tmp_path)
    assert "others held 1.0 of 8 CPUs (stress up to 1.0)" in report.load_note
    assert "rerun on an idle machine" in report.load_note
    assert any(r.contended and r.counted for found in report.comparisons for r in found.rounds)


@pytest.mark.parametrize(("budget_s", "repeats"), [(1000.0, 1), (60.0, 0)])
def test_a_process_that_is_dear_for_the_budget_is_not_repeated_by_itself(
    budget_s, repeats, tmp_path
) -> None:
    """Twice 5 s are little of a quarter of an hour, and too much of a minute."""
    engine = on_formula(load_s=1e-6, process_s=5.0, held=lambda *_: 1.0)
    search = formula_search(tmp_path, engine, TEXT, workload=TEST, budget_s=budget_s)
    assert sum(attempt.repeated for attempt in search.executor.attempts) == repeats
