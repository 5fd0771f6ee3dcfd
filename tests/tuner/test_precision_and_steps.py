"""Precision and the steps of a sampler: inside a declared tolerance, and after what is free."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.model import Failure, Run, Trial
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.configs import GUARD, TRAINING


@pytest.mark.parametrize(("drift", "taken"), [(0.001, True), (0.2, False)])
def test_precision_is_taken_only_inside_the_guard(tmp_path, drift, *, taken) -> None:
    """Losses of both runs are compared."""
    engine = on_formula(load_s=1e-6, bf16_drift=drift)
    search = formula_search(tmp_path, engine, TRAINING, workload=GUARD)
    assert ("precision" in search.values) is taken


@pytest.mark.parametrize(("added_rmse", "taken"), [(0.01, True), (0.2, False)])
def test_without_losses_precision_is_judged_by_the_quality_measure(
    tmp_path, added_rmse, *, taken
) -> None:
    """Chosen by some seeds, and then confirmed by others."""
    engine = on_formula(
        load_s=1e-6,
        trains=False,
        quality=lambda _: 0.5,
        quality_noise=1e-4,
        quality_name="rmse",
        bf16_quality=added_rmse,
    )
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": "5%"}}
    search = formula_search(tmp_path, engine, TRAINING, workload={"quality": measure})
    quality = search.state.quality
    assert ("precision" in search.values) is taken
    looks = [(judgement.stage, judgement.within) for _, judgement in quality.judgements]
    assert looks == ([("chosen", True), ("confirmed", True)] if taken else [("chosen", False)])
    assert dict(quality.before) == pytest.approx({"rmse": 0.5}, abs=1e-3)


AMP = TRAINING.replace("precision: fp32", "amp: false")


def test_a_flag_leaves_the_dtype_to_the_program(tmp_path) -> None:
    """One process tries it, whatever the target computes in, and no sentence names a dtype."""
    every = ("float32", "bfloat16", "float16")
    engine = on_formula(load_s=1e-6, bf16_drift=0.2)
    formula_search(tmp_path, engine, AMP, workload=GUARD, precisions=every)
    tried = [a for a in engine.asked if any(c.path == "amp" for c in a.trial.candidate.changes)]
    assert len([asked for asked in tried if asked.trial.purpose == "search"]) <= 1
    narrow = formula_search(
        tmp_path, on_formula(load_s=1e-6), AMP, workload=GUARD, precisions=("float32",)
    )
    assert "float16" not in narrow.decisions["amp"].reason


SAMPLER = (
    "num_workers: 0\nbatch_size: 2\nsampler:\n  n_timestep: 1000\n"
    "  linear_start: 0.0001\n  linear_end: 0.02\nsteps: 1000\n"
)


def sampler(**more: Any) -> RecordedEngine:
    """An iterative sampler whose steps stand in the config as `sampler.n_timestep`."""
    return on_formula(
        load_s=1e-6,
        sampler=True,
        names={"steps": "n_timestep"},
        quality=lambda n: 0.5 + 10 / n,
        **{"quality_name": "rmse", "quality_noise": 1e-4, **more},
    )


def sampler_search(folder: Path, tolerance: str, **more: Any) -> FormulaSearch:
    budget_s = more.pop("budget_s", 1e9)
    engine = sampler(**more)
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": tolerance}}
    workload = {"phase": "test", "quality": measure}
    return formula_search(folder, engine, SAMPLER, workload=workload, budget_s=budget_s)


def test_steps_go_down_to_the_tolerance_and_take_their_schedule_along(tmp_path) -> None:
    """RMSE is 0.5 + 10/n: at 5 % of 0.51 the limit is 0.5355, so 500 holds and 250 does not."""
    search = sampler_search(tmp_path, "5%")
    assert search.values["n_timestep"] == 500
    assert search.values["linear_end"] > 0.02
    assert search.decisions["linear_end"].outcome == "changed"
    judged = [
        (label.split()[-1], judgement.stage, judgement.within)
        for label, judgement in search.state.quality.judgements
    ]
    assert judged == [
        ("50", "chosen", False),
        ("250", "chosen", False),
        ("500", "chosen", True),
        ("500", "confirmed", True),
    ]


def test_what_is_free_is_proven_before_quality_is_touched(tmp_path) -> None:
    """The first comparison is of free knobs alone, and no quality process ran before its end."""
    search = sampler_search(tmp_path, "5%")
    purposes = [attempt.request.purpose for attempt in search.executor.attempts]
    assert purposes.index("confirm") < purposes.index("quality")
    first = search.state.confirmations[0].ab_test.after.candidate
    assert first.changes
    assert all(change.knob_class == "free" for change in first.changes)
    assert "other draws of the same distribution" in search.decisions["batch_size"].reason


@pytest.mark.parametrize(("speedup", "taken"), [(1.4, True), (0.97, False)])
def test_steps_come_before_precision_and_each_is_proven_by_itself(
    tmp_path, speedup, *, taken
) -> None:
    """A precision of no gain was written on the back of steps that gained tenfold."""

    class LuckyOnce(RecordedEngine):
        """The machine has a quick moment at bf16's only run of the search."""

        def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
            result = super().run(trial, *args, **more)
            narrow = any(change.new == "bf16" for change in trial.candidate.changes)
            lucky = narrow and trial.purpose == "search" and isinstance(result, Run)
            return replace(result, units_per_s=1.5 * result.units_per_s) if lucky else result

    engine = on_formula(
        LuckyOnce,
        load_s=1e-6,
        sampler=True,
        names={"steps": "n_timestep"},
        quality=lambda n: 0.5 + 10 / n,
        quality_name="rmse",
        quality_noise=1e-4,
        bf16_speedup=speedup,
    )
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": "5%"}}
    workload = {"phase": "test", "quality": measure}
    text = f"{SAMPLER}precision: fp32\n"
    search = formula_search(tmp_path, engine, text, workload=workload, budget_s=1e9)
    assert search.values["n_timestep"] == 500
    assert ("precision" in search.values) is taken
    steps = next(each for each in search.state.confirmations if "500" in each.ab_test.after.label)
    assert "bf16" not in steps.ab_test.after.label


def test_what_trades_results_is_written_only_for_a_gain_of_its_own(tmp_path) -> None:
    """A precision that gains 2 % is no gain beyond the free part, which stays."""
    for speedup, taken in ((1.5, True), (1.02, False)):
        engine = on_formula(load_s=1e-6, bf16_speedup=speedup)
        search = formula_search(tmp_path / f"{speedup}", engine, TRAINING, workload=GUARD)
        assert search.values["batch_size"] > 4
        assert ("precision" in search.values) is taken


@pytest.mark.parametrize(("files", "taken"), [(lambda batch: batch, True), (lambda _: 1, False)])
def test_a_samplers_batch_that_loses_results_is_given_up_where_items_are_finished(
    files, taken, tmp_path
) -> None:
    """In windows no item is; the quality runs finish the same items with both."""
    search = sampler_search(tmp_path, "50%", files=files)
    assert ("batch_size" in search.values) is taken


@pytest.mark.parametrize("seed", [0, 4])
def test_a_small_gain_leaves_time_for_a_narrower_precision(seed, tmp_path) -> None:
    """On a busy card a batch gains 6 %: its proof took the whole budget, and bf16 had none."""
    engine = on_formula(
        load_s=1e-6, launch_s=2.6e-3, unit_s=0.01, noise=0.02, process_s=5.0, seed=seed
    )
    search = formula_search(tmp_path, engine, TRAINING, workload=GUARD, budget_s=240.0)
    assert search.values["precision"] == "bf16"
    assert search.decisions["precision"].outcome == "changed"


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_a_busy_card_with_free_memory_sees_a_larger_batch_before_another_worker(
    tmp_path, noise
) -> None:
    """It waits for data 4 % of the time: eight of eleven processes went into 1.03x of a worker."""
    engine = on_formula(
        noise=noise,
        process_s=10.0,
        load_s=0.00025,
        load_cpu_s=0.0002,
        launch_s=0.02,
        unit_s=0.005,
        base_gib=1.4,
        trains=False,
    )
    text = "batch_size: 16\nnum_workers: 0\n"
    search = formula_search(tmp_path, engine, text, budget_s=180.0, memory_gib=22.0)
    assert search.asked("search")[0].request.variant.label == "batch 64"
    assert search.values["batch_size"] == 128


SLOW_BATCH = "batch_size: 1\nprecision: fp32\n"


def precision_behind_a_slow_batch(folder: Path, budget_s: float) -> FormulaSearch:
    """The chosen batch takes three times as long a process as the original."""

    def process_s(trial: Trial) -> float:
        grown = [c for c in trial.candidate.changes if c.kind == "batch_size" and c.new > 8]
        return 17.0 if grown else 6.0

    engine = on_formula(process_s=process_s, noise=0.02, load_s=1e-6, launch_s=0.02, unit_s=0.002)
    workload = {**GUARD, "phase": "test"}
    return formula_search(folder, engine, SLOW_BATCH, workload=workload, budget_s=budget_s)


def test_a_precision_is_planned_at_the_cost_of_the_batch_it_runs_with(tmp_path) -> None:
    """A slow batch is no sign of a busy machine, and its proof leaves room for what follows."""
    short = precision_behind_a_slow_batch(tmp_path, 180.0)
    *_, last = short.state.skipped
    assert last.task.kind == "quality-confirmation"
    assert last.needed_s == pytest.approx(3 * 1.1 * 2 * 17.0)  # three pairs of such processes
    enough = precision_behind_a_slow_batch(tmp_path, 440.0)
    assert {"batch_size", "precision"} <= set(enough.values)


def test_a_precision_that_the_budget_left_unconfirmed_is_called_faster(tmp_path) -> None:
    """It is inside the tolerance as far as one run tells, which runs though no proof would fit."""
    for budget_s in (240.0, 360.0):
        search = precision_behind_a_slow_batch(tmp_path, budget_s)
        assert search.decisions["precision"].cause == "not-proven"
    assert search.decisions["precision"].reason.startswith("`bf16` was faster: drift 0.1 %")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (
            {"fails": lambda _, trial: "crash-import" if trial.purpose == "quality" else None},
            "the quality command failed (crash-import: ",
        ),
        ({"quality_name": "mse"}, "the quality command printed no rmse"),
    ],
)
def test_a_quality_that_cannot_be_measured_is_told_with_its_reason(tmp_path, how, reason) -> None:
    """A forgotten interpreter is no output without a figure."""
    found = sampler_search(tmp_path, "5%", **how).decisions["n_timestep"]
    assert found.outcome == "refused"
    assert found.reason.startswith(f"The original's quality could not be measured: {reason}")
