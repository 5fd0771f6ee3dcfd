"""The plan of a budget adds up to it, and keeps the proof whatever a process costs."""

from dataclasses import replace

import pytest

from advisor.settings import Workload
from advisor.tuner.state import TunerState
from advisor.tuner.time_plan import plan_of
from tests.runs import a_run
from tests.tuner.test_values_of_a_knob import CONTEXT


def begun(price_s: float, **workload: object) -> TunerState:
    """After two baselines of a 5-minute call."""
    declared = Workload.model_validate({"command": "x", **workload})
    return TunerState(
        context=replace(CONTEXT, workload=declared, budget_s=300.0),
        remaining_s=300.0 - 2 * price_s,
        originals=(a_run(wall_s=price_s), a_run(wall_s=price_s)),
        costs_s=(price_s, price_s),
    )


@pytest.mark.parametrize("price_s", [1.0, 6.0, 14.0, 40.0])
def test_the_parts_add_up_to_the_budget(price_s) -> None:
    plan = plan_of(begun(price_s, **{"numeric-tolerance": "1%"}))
    parts = (plan.baseline_s, plan.search_s, plan.proof_s, plan.quality_s)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(300.0)


def test_without_consent_no_time_is_planned_for_quality() -> None:
    plan = plan_of(begun(6.0))
    assert plan.quality_s == 0
    assert "quality" not in plan.sentence


def test_the_sentence_tells_each_part() -> None:
    plan = plan_of(begun(6.0, **{"numeric-tolerance": "1%"}))
    assert plan.sentence.startswith("plan of 5 min: baseline 12 s, search about 30 s, proof about ")
    assert ", quality up to " in plan.sentence
