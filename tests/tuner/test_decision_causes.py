"""Each decision and each task that was left out has a cause, of which its outcome follows."""

from typing import get_args

import pytest

from advisor.model import OUTCOMES, DecisionCause, TaskKind
from advisor.tuner.outcomes import TASKS
from tests.report.composing import reported
from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.configs import TEST


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
