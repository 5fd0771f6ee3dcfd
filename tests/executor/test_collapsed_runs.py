"""Runs that fall to a part of their speed now and then: a proof outlives them, and hides none."""

import random
from dataclasses import replace

import pytest

from advisor import stats
from advisor.executor.requests import AFTER, BEFORE
from advisor.executor.rounds import MOST_COLLAPSED, collapsed, rounds_wanted
from advisor.model import Failure, Run, Trial
from advisor.objective import THROUGHPUT
from advisor.report import verdict
from tests.executor.made import compared
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import formula_search, on_formula

PLANNED = 6
WORLDS = 200
SMALLEST_GAIN = 0.03
ONE_IN_40 = WORLDS / 40


def proven(rng: random.Random, before: float, after: float, faster: float = 1.0) -> bool:
    """Of one proof, in which these shares of the arms' runs fall to a tenth of their rate."""
    rates: dict[str, list[float]] = {BEFORE: [], AFTER: []}
    while len(rates[BEFORE]) < PLANNED or len(rates[BEFORE]) < rounds_wanted(PLANNED, rates):
        for arm, share, usual in ((BEFORE, before, 1.0), (AFTER, after, faster)):
            fallen = 0.1 if rng.random() < share else 1.0
            rates[arm].append(usual * fallen * rng.lognormvariate(0.0, 0.05))
    pairs = list(zip(rates[BEFORE], rates[AFTER], strict=True))
    return compared(pairs, rounds=PLANNED).proven(THROUGHPUT, SMALLEST_GAIN)


def test_a_run_collapsed_where_it_lies_below_half_of_the_others() -> None:
    """Two of six do not hide each other; a slow half is a second speed, and one run is nothing."""
    assert collapsed([10.0, 9.9, 1.0, 10.1, 10.0, 1.1]) == 2
    assert collapsed([10.0, 6.0, 5.5, 10.0]) == 0
    assert collapsed([1.0]) == collapsed([]) == 0


def test_the_arm_with_more_of_them_sets_the_rounds_whichever_it_is() -> None:
    """Or a gain would be had by what is repeated; beyond the bound it is no accident."""
    quiet, once = [10.0] * PLANNED, [10.0] * (PLANNED - 1) + [1.0]
    assert rounds_wanted(PLANNED, {BEFORE: quiet, AFTER: quiet}) == PLANNED
    assert rounds_wanted(PLANNED, {BEFORE: quiet, AFTER: once}) == stats.pairs_that_outlive(1)
    assert rounds_wanted(PLANNED, {BEFORE: once, AFTER: quiet}) == stats.pairs_that_outlive(1)
    often = [10.0] * 9 + [1.0] * (MOST_COLLAPSED + 1)
    assert rounds_wanted(PLANNED, {BEFORE: [10.0] * len(often), AFTER: often}) == PLANNED


@pytest.mark.parametrize(
    ("before", "after", "faster"), [(0.2, 0.2, 1.0), (0.05, 0.3, 1.0), (0.0, 0.6, 2.0)]
)
def test_what_is_no_faster_is_not_called_so(before, after, faster) -> None:
    """At most one in 40: arms alike that collapse alike, or one of them more often, or one that is
    faster and loses more by collapsing than it gains."""
    rng = random.Random(f"{before}{after}")
    assert sum(proven(rng, before, after, faster) for _ in range(WORLDS)) <= ONE_IN_40


class Falling(RecordedEngine):
    """Some runs have a tenth of their rate: by purpose, whether they are of a candidate, and their
    number among those, from 1."""

    falls: tuple[tuple[str, bool, int], ...] = ()

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        kind = (trial.purpose, bool(trial.candidate.changes))
        kinds = [(a.trial.purpose, bool(a.trial.candidate.changes)) for a in self.asked]
        if (*kind, kinds.count(kind)) not in self.falls or not isinstance(run, Run):
            return run
        return replace(run, units_per_s=run.units_per_s / 10)


@pytest.mark.parametrize("falls", [[(True, 2)], [(False, 1), (True, 6)]])
def test_a_proof_goes_on_until_what_fell_decides_nothing(tmp_path, falls) -> None:
    """Whichever arm it was; every round counts, and the report tells of them. It gains 2x."""
    engine = on_formula(Falling, noise=0.01, load_s=0.01, launch_s=1e-6, unit_s=0.01)
    engine.falls = tuple(("confirm", *fall) for fall in falls)
    text = "batch_size: 64\nnum_workers: 0\n"
    search = formula_search(tmp_path, engine, text, workload={"phase": "test"})
    assert search.values["num_workers"]
    (proof,) = search.state.confirmations
    each = [proof.collapsed(arm) for arm in (BEFORE, AFTER)]
    assert each == [sum(not mine for mine, _ in falls), sum(mine for mine, _ in falls)]
    assert len(proof.rounds) == len(proof.counted) == stats.pairs_that_outlive(max(each))
    note = verdict.collapsed(proof)
    for many, test in zip(each, (proof.ab_test.before, proof.ab_test.after), strict=True):
        assert (f"{many} of {test.label}" in note) is bool(many)
