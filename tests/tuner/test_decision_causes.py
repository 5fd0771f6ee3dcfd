"""Each decision and each task that was left out has a cause, of which its outcome follows."""

from dataclasses import replace
from typing import get_args

import pytest

from advisor.model import OUTCOMES, DecisionCause, TaskKind
from advisor.tuner.decisions import unchanged
from advisor.tuner.outcomes import TASKS, KnobVerdict
from advisor.tuner.state import key_of
from tests.report.composing import reported
from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.configs import TEST, TRAINING


def test_each_cause_has_an_outcome_and_each_task_its_words() -> None:
    """A further one is a line of data."""
    assert set(OUTCOMES) == set(get_args(DecisionCause))
    assert set(TASKS) == set(get_args(TaskKind))


TEXT = """\
batch_size: 4
num_workers: 0
pin_memory: false  # do not modify
precision: fp32
"""


@pytest.mark.parametrize("budget_s", [1e9, 30.0])
def test_every_decision_of_a_report_has_the_outcome_of_its_cause(tmp_path, budget_s) -> None:
    """In report.json, where scripts read the cause in place of the sentence."""
    search = formula_search(
        tmp_path, on_formula(), TEXT, name="c.yaml", workload=TEST, budget_s=budget_s
    )
    report = reported(search, tmp_path)
    assert report.decisions
    for decision in report.decisions:
        assert decision.outcome == OUTCOMES[decision.cause]
    causes = {each.path: each.cause for each in report.decisions}
    assert causes["pin_memory"] == "frozen"
    if budget_s == 1e9:
        assert causes["batch_size"] == "faster"


def test_a_gain_is_called_unproven_by_rounds_only_where_rounds_ran(tmp_path) -> None:
    """`The gain was not confirmed` was said of settings whose comparison had never begun."""
    state = formula_search(tmp_path, on_formula(), TRAINING).state
    compared = state.confirmations[-1].ab_test.after.candidate
    (knob,) = (each for each in state.all_knobs if each.kind == "num_workers")
    assert key_of(knob) in {key_of(change) for change in compared.changes}
    verdict = KnobVerdict(key_of(knob), "faster", "")
    reasons = [
        unchanged(each, knob, verdict, whole=True)
        for each in (state, replace(state, confirmations=()))
    ]
    assert reasons == [
        ("not-proven", "Not written: faster in the search, and its rounds did not prove the gain."),
        ("not-proven", "Not written: faster in the search, and no rounds that would prove it ran."),
    ]
