"""Every budget ends in an answer: start-ups of 1 to 35 s a process on a clock that is a formula."""

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from advisor.executor.executor import LATE_S
from advisor.model import Trial
from advisor.runner.supervisor import TERM_GRACE_S
from advisor.tuner import reserves
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula, taking
from tests.tuner.configs import INFERENCE, TEST

STARTUPS_S = (1, 2, 3, 5, 8, 12, 16, 21, 28, 35)
WINDOW_S = 3.5
BUDGET_S = 240.0
CODED = {"batch_size": 4, "num_workers": 0}
PROGRAMS = {
    "batch": ({"load_s": 1e-6, "launch_s": 0.02, "unit_s": 0.002}, INFERENCE),
    "workers": ({"load_s": 0.004, "launch_s": 0.001}, "batch_size: 8\nnum_workers: 0\n"),
    "both": ({"load_s": 0.002, "launch_s": 0.02}, INFERENCE),
    "nothing": (
        {"load_s": 1e-6, "launch_s": 1e-5, "unit_s": 0.01},
        "batch_size: 8\nnum_workers: 0\n",
    ),
}


@functools.cache
def at(kind: str, startup_s: float, budget_s: float = BUDGET_S) -> FormulaSearch:
    """The program `kind` behind a start-up of so many seconds."""
    costs, text = PROGRAMS[kind]
    engine = on_formula(process_s=startup_s + WINDOW_S, noise=0.02, seed=int(startup_s), **costs)
    with tempfile.TemporaryDirectory() as folder:
        return formula_search(
            Path(folder), engine, text, workload=TEST, budget_s=budget_s, gpu=False
        )


def proven(search: FormulaSearch) -> bool:
    """Improved; or unchanged, because candidates ran and lost."""
    if search.winner.changes:
        return True
    left_out = any(skipped.matters for skipped in search.state.skipped)
    return search.stop.reason == "done" and not left_out and bool(search.asked("search"))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_nine_of_ten_start_ups_end_in_a_proven_answer(kind) -> None:
    """Within four minutes, and what is begun ends inside it; the tenth says which would do."""
    ended = [at(kind, startup_s) for startup_s in STARTUPS_S]
    assert sum(map(proven, ended)) >= 9
    for search in ended:
        assert search.executor.budget.remaining_s >= 0
        assert not any(found.cut_short for found in search.executor.comparisons)
        assert proven(search) or search.stop.needed_s
        if kind != "nothing" and proven(search):
            assert search.winner.changes


@pytest.mark.parametrize("kind", PROGRAMS)
def test_nothing_is_left_unspent_that_could_still_be_tried_and_proven(kind) -> None:
    """With more than a tenth left, no candidate that was left out fits in with its proof."""
    for startup_s in STARTUPS_S:
        search = at(kind, startup_s)
        left_out = [skipped for skipped in search.state.skipped if skipped.matters]
        if left_out and search.executor.budget.remaining_s > BUDGET_S / 10:
            assert search.executor.budget.remaining_s < reserves.fewest_s(search.state)


@pytest.mark.parametrize("startup_s", [35.0, 60.0, 110.0, 200.0])
def test_a_budget_that_is_too_small_names_one_that_does(startup_s) -> None:
    """Said before the first candidate; given what it names, the search ends in a proven gain."""
    search = at("both", startup_s)
    assert search.stop.reason == "budget-too-small"
    assert not search.asked("search")
    enough = at("both", startup_s, search.stop.needed_s)
    assert enough.stop.reason == "done"
    assert enough.winner.changes


@pytest.mark.parametrize("startup_s", [110.0, 400.0])
def test_a_call_that_ends_before_a_setting_gives_no_other_reason_for_it(
    tmp_path, startup_s
) -> None:
    """What the whole search would have looked at was not looked at."""
    text = "batch_size: 4\naccumulation_steps: 8\nprecision: fp32\nnum_workers: 0\ncompile: false\n"
    engine = on_formula(process_s=startup_s, observed={"trains": "optimizer"}, load_s=1e-6)
    search = formula_search(tmp_path, engine, text, budget_s=BUDGET_S)
    assert search.stop.reason == "budget-too-small"
    assert {decision.outcome for decision in search.decisions.values()} == {"skipped"}


@pytest.mark.parametrize("budget_s", [90.0, 100.0, 110.0])
def test_what_bounded_the_batch_is_told_although_the_budget_ended_the_search(
    tmp_path, budget_s
) -> None:
    """That a value failed says more than that a smaller one did not fit any more."""

    def fails(values: Mapping[str, Any], _: Any) -> str | None:
        return "gpu-oom" if values["batch_size"] > 1 else None

    engine = on_formula(load_s=1e-6, process_s=12.0, fails=fails)
    search = formula_search(
        tmp_path, engine, INFERENCE, workload=TEST, budget_s=budget_s, gpu=False
    )
    assert any("batch " in skipped.task.text for skipped in search.state.skipped)
    assert "failed: gpu-oom" in search.decisions["batch_size"].reason


@pytest.mark.parametrize("held", [None, lambda *_: 1.0])
@pytest.mark.parametrize("late", [1.3, 4.0])
@pytest.mark.parametrize("budget_s", [80.0, 240.0])
def test_a_budget_is_overrun_by_a_few_seconds_at_most(tmp_path, budget_s, late, held) -> None:
    """However much longer than the others the processes at its end take, and whoever is waited
    for; seven seconds hold the stopping and the report, too."""
    costs, text = PROGRAMS["both"]
    process_s = taking(8.0 * late, baseline=8.0)
    engine = on_formula(process_s=process_s, noise=0.02, held=held, **costs)
    search = formula_search(tmp_path, engine, text, workload=TEST, budget_s=budget_s, gpu=False)
    assert search.executor.budget.remaining_s >= -LATE_S
    assert LATE_S + TERM_GRACE_S <= 5.0


def test_a_budget_that_ends_amid_the_proof_ends_it_without_one(tmp_path) -> None:
    """Processes may slow down once the rounds are planned: nothing is written then."""
    slower = on_formula(load_s=1e-6, process_s=taking(1.0, confirm=60.0))
    search = formula_search(tmp_path, slower, INFERENCE, workload=TEST, budget_s=50.0)
    assert search.state.confirmations[0].cut_short
    assert any(skipped.matters for skipped in search.state.skipped)
    assert not search.winner.changes
    assert search.decisions["batch_size"].outcome != "changed"


@pytest.mark.parametrize(("held", "startup_s"), [(0.0, 0.0), (1.0, 0.0), (0.0, 70.0)])
def test_an_item_of_a_sampler_is_not_waited_for_until_the_budget_is_gone(held, startup_s) -> None:
    """Its forwards are counted in an item of few steps; the batch is proven in windows."""

    def takes_s(trial: Trial) -> float:
        moved = [c.new for c in trial.candidate.changes if c.kind == "timesteps"]
        steps = float(moved[0] or 0) if moved else 1000.0
        return 10.0 + trial.plan.whole_batches * 0.4 * steps

    engine = on_formula(
        process_s=takes_s,
        startup_s=startup_s,
        load_s=1e-6,
        launch_s=0.4,
        sampler=True,
        names={"steps": "n_timestep"},
        held=lambda *_: held,
    )
    text = INFERENCE + "sampler:\n  n_timestep: 1000\n"
    with tempfile.TemporaryDirectory() as folder:
        search = formula_search(
            Path(folder), engine, text, workload=TEST, budget_s=300.0 + 60 * startup_s, gpu=False
        )
    assert search.values["batch_size"] > 1
    assert [run.effects.forwards_per_unit for run in search.state.originals] == [1000.0] * 2
    assert search.executor.budget.remaining_s >= 0


@pytest.mark.parametrize("budget_s", [80.0, 120.0, 160.0, 240.0])
def test_a_batch_whose_steps_take_long_is_begun_only_where_they_fit(tmp_path, budget_s) -> None:
    """A few steps of a large batch fill many windows: what they take is foreseen."""
    engine = RecordedEngine(Formula(load_s=1e-6, launch_s=0.5, unit_s=0.05, startup_s=5.0))
    formula_search(
        tmp_path, engine, "batch_size: 20\n", workload=TEST, budget_s=budget_s, gpu=False
    )
    assert engine.clock() <= budget_s


def test_rounds_that_take_less_than_was_feared_are_more(tmp_path) -> None:
    """A busy machine makes the first processes dear: what the rounds themselves take says how many
    of those that the noise asks for the budget bears, and none is begun that it does not."""
    engine = on_formula(process_s=taking(10.0, confirm=4.0), **PROGRAMS["batch"][0])
    search = formula_search(tmp_path, engine, INFERENCE, workload=TEST, budget_s=100.0, gpu=False)
    (proof,) = search.state.confirmations
    assert proof.ab_test.rounds < len(proof.counted) <= proof.ab_test.max_rounds
    assert not proof.cut_short
    assert search.executor.budget.remaining_s >= 0


def test_a_budget_too_small_is_told_after_one_process(tmp_path) -> None:
    engine = on_formula(load_s=1e-6, process_s=88.0, startup_s=5.0)
    search = formula_search(tmp_path, engine, INFERENCE, workload=TEST, budget_s=240.0)
    assert search.stop.reason == "budget-too-small"
    assert len(search.executor.attempts) == 1
    assert search.state.originals
