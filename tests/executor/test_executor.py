"""Requests to results: what the budget ends, and who waits for whom."""

import pytest

from advisor.errors import NodeLostError
from advisor.executor.requests import SkippedRun, TrialRequest, Variant
from advisor.model import PROCESS, Candidate, Change, Failure, MeasurePlan, Run, Trial
from tests.runs import a_failure
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import Quiet, formula_search, on_formula

COMPILED = Candidate(
    changes=(
        Change(
            document=PROCESS,
            path="compile",
            kind="compile",
            knob_class="numeric",
            old=False,
            new=True,
            in_code=True,
        ),
    )
)


class Losing(RecordedEngine):
    """Loses its node at every fifth process."""

    begun = 0
    most = 1000

    def run(self, trial: Trial) -> Run | Failure:
        self.begun += 1
        if self.begun % 5 == 0:
            self.most -= 1
            msg = "The node n1 was lost: the node failed."
            raise NodeLostError(msg, again=self.most > 0)
        return super().run(trial)


class GivenUp(RecordedEngine):
    """Once told how long, its processes run into their limit then."""

    wall_s = 0.0

    def run(self, trial: Trial) -> Run | Failure:
        if not self.wall_s:
            return super().run(trial)
        self._now_s += self.wall_s
        return a_failure("timeout", wall_s=self.wall_s)


class Reasons(Quiet):
    """Keeps why the last process was given up."""

    last = ""

    def note(self, text: str) -> None:
        self.last = text


def test_a_trial_that_the_budget_ended_failed_in_nothing(tmp_path) -> None:
    """It is skipped for want of time: no failed attempt, and nothing kept of it."""
    search = formula_search(tmp_path, on_formula(process_s=5.0), "lr: 0.1\n", budget_s=60.0)
    executor = search.executor
    executor.budget.total_s += 1.0 - executor.budget.remaining_s
    before = len(executor.attempts)
    plan = MeasurePlan(measure_s=4.0)
    request = TrialRequest(variant=Variant(candidate=COMPILED), purpose="whatif", plan=plan)
    found = executor.measure(request)
    assert isinstance(found, SkippedRun)
    assert found.stopped
    assert len(executor.attempts) == before


@pytest.mark.parametrize(("wall_s", "said"), [(12.0, "no item within 6 s"), (61.0, "budget")])
def test_a_process_that_is_given_up_is_told_with_its_own_limit(tmp_path, wall_s, said) -> None:
    """A sampler's first item has a part of the budget; neither limit is the program's failure."""
    engine = on_formula(GivenUp)
    search = formula_search(tmp_path, engine, "lr: 0.1\n", budget_s=60.0)
    executor, heard = search.executor, Reasons()
    executor.listener = heard
    executor.budget.total_s += 60.0 - executor.budget.remaining_s

    engine.wall_s = wall_s
    plan = MeasurePlan()
    request = TrialRequest(variant=Variant(), purpose="whatif", plan=plan, fresh=True, limit_s=6.0)
    assert isinstance(executor.measure(request), SkippedRun)
    assert said in heard.last


def test_a_lost_node_costs_its_round_and_says_nothing_about_a_candidate(tmp_path) -> None:
    """The round is run again whole; the search ends where it ends without losses."""
    kept = formula_search(tmp_path, on_formula(), "batch_size: 1\n")
    engine = on_formula(Losing)
    search = formula_search(tmp_path, engine, "batch_size: 1\n")
    assert isinstance(engine, Losing)
    assert engine.begun // 5 > 2
    assert search.values == kept.values
    assert all(attempt.run is not None for attempt in search.executor.attempts)
    for before, after in zip(kept.executor.comparisons, search.executor.comparisons, strict=True):
        assert len(after.rounds) == len(before.rounds)
        assert all(set(each.runs) == set(after.ab_test.names) for each in after.rounds)


def test_a_node_that_must_not_be_asked_for_again_ends_the_call(tmp_path) -> None:
    engine = on_formula(Losing)
    assert isinstance(engine, Losing)
    engine.most = 1
    with pytest.raises(NodeLostError, match="The node n1 was lost: the node failed"):
        formula_search(tmp_path, engine, "batch_size: 1\n")
