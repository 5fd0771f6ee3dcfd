"""The plan of a budget adds up to it, and keeps the proof whatever a process costs."""

from dataclasses import replace

import pytest

from advisor.executor.requests import Variant
from advisor.model import Purpose
from advisor.settings import Workload
from advisor.tuner.costs import ProcessCosts
from advisor.tuner.stages import SearchStep, make_request
from advisor.tuner.state import TunerState
from advisor.tuner.time_plan import plan_of
from tests.runs import a_run
from tests.tuner.test_values_of_a_knob import CONTEXT


def begun(price_s: float, purpose: Purpose = "search", **workload: object) -> SearchStep:
    """First trial after two baselines of a 5-minute call."""
    declared = Workload.model_validate({"command": "x", **workload})
    state = TunerState(
        context=replace(CONTEXT, workload=declared, budget_s=300.0),
        remaining_s=300.0 - 2 * price_s,
        originals=(a_run(wall_s=price_s), a_run(wall_s=price_s)),
        costs=ProcessCosts(seconds=(price_s, price_s)),
        by_hand=purpose == "whatif",
    )
    return SearchStep(request=make_request(state, Variant(), purpose), state=state)


@pytest.mark.parametrize("purpose", ["search", "quality", "whatif"])
@pytest.mark.parametrize("price_s", [1.0, 6.0, 14.0, 40.0])
@pytest.mark.parametrize("workload", [{}, {"numeric-tolerance": "1%"}])
def test_the_parts_add_up_to_the_budget(price_s, purpose, workload) -> None:
    budget_s, *parts = plan_of(begun(price_s, purpose, **workload))
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(budget_s)


def test_without_consent_no_time_is_planned_for_quality() -> None:
    """What is left is for what only the user may change."""
    plan = plan_of(begun(6.0))
    assert plan.quality_s == 0
    assert "quality" not in plan.sentence
    assert ", suggestions up to " in plan.sentence


def test_where_no_setting_may_be_written_no_search_and_no_proof_are_promised() -> None:
    """A program whose values stand in its code begins with suggestions, and ends with them."""
    plan = plan_of(begun(6.0, "whatif"))
    assert plan.sentence == "plan of 5 min: baseline 12 s, suggestions up to 4 min 48 s"


def test_the_sentence_tells_each_part() -> None:
    plan = plan_of(begun(6.0, **{"numeric-tolerance": "1%"}))
    assert plan.sentence.startswith("plan of 5 min: baseline 12 s, search about 30 s, proof about ")
    assert ", quality up to " in plan.sentence
