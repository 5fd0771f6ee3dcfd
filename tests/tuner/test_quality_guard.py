"""Quality is proven like speed: what is written holds on seeds and items that did not choose it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.model import Failure, Run, Trial
from tests.report.composing import reported
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula, taking

TEXT = "batch_size: 8\nn_timestep: 1000\n"
TOLERANCE = 0.1


def searched(
    folder: Path,
    kind: type[RecordedEngine] = RecordedEngine,
    *,
    workload: dict[str, Any] | None = None,
    budget_s: float = 1e9,
    text: str = TEXT,
    **formula: Any,
) -> FormulaSearch:
    """A sampler whose quality is 1 at any number of steps, but for what `formula` says."""
    engine = on_formula(
        kind,
        **{
            "load_s": 1e-6,
            "launch_s": 1e-6,
            "sampler": True,
            "trains": False,
            "names": {"steps": "n_timestep"},
            "quality": lambda _: 1.0,
            "process_s": 1.0,
            **formula,
        },
    )
    measure = {"quality": {"pattern": "quality: (-?[0-9.]+)", "tolerance": str(TOLERANCE)}}
    asked = {"phase": "test", "quality": measure, **(workload or {})}
    return formula_search(folder, engine, text, workload=asked, budget_s=budget_s, gpu=False)


def seeds(search: FormulaSearch, command: str) -> list[tuple[str, bool]]:
    """Seed of each quality run, and whether it had fewer steps."""
    return [
        (
            dict(asked.trial.env)["GPU_ADVISOR_SEED"],
            any(c.kind == "timesteps" for c in asked.trial.candidate.changes),
        )
        for asked, attempt in zip(search.engine.asked, search.executor.attempts, strict=False)
        if attempt.request.command == command
    ]


@pytest.mark.parametrize(
    ("items", "noise", "deviation"),
    [
        (1, "quality_noise", 2 * TOLERANCE),
        (8, "quality_of_seed", 2 * TOLERANCE),
        (8, "quality_noise", 2 * TOLERANCE * 8**0.5),
    ],
)
def test_a_measure_twice_as_noisy_as_its_tolerance_proves_nothing(
    tmp_path, items, noise, deviation
) -> None:
    """10 of 10 are refused although no step costs any quality: it cannot be seen."""
    for draw in range(10):
        search = searched(
            tmp_path / f"{draw}", quality_draw=draw, quality_items=items, **{noise: deviation}
        )
        assert "n_timestep" not in search.values, draw
        assert search.decisions["n_timestep"].reason


@pytest.mark.parametrize(("items", "noise"), [(1, 0.01), (8, 0.05)])
def test_steps_are_written_where_the_bounds_lie_inside(tmp_path, items, noise) -> None:
    """Chosen with some seeds and confirmed with others, the same for both arms."""
    search = searched(
        tmp_path, quality=lambda n: 1.0 + 7 / n, quality_noise=noise, quality_items=items
    )
    assert search.values["n_timestep"] == 100
    chose, confirmed = seeds(search, "quality"), seeds(search, "confirm-quality")
    assert not {seed for seed, _ in chose} & {seed for seed, _ in confirmed}
    assert {s for s, fewer in confirmed if fewer} == {s for s, fewer in confirmed if not fewer}
    last = search.state.quality.judgements[-1][1]
    assert last.stage == "confirmed"
    assert last.within
    assert last.items == items
    assert last.runs >= 4
    assert (last.low or 9.0) < (last.value or 0.0) < (last.high or 9.0) < (last.limit or 0.0)
    assert "on seeds that did not choose it" in search.decisions["n_timestep"].reason


def test_what_a_seed_changes_in_both_arms_costs_no_confirming_runs(tmp_path) -> None:
    """Figures that vary by three tolerances from seed to seed are judged by their pairs."""
    search = searched(
        tmp_path,
        quality=lambda n: 1.0 + 7 / n,
        quality_of_pair=3 * TOLERANCE,
        quality_noise=0.05 * TOLERANCE,
    )
    assert search.values["n_timestep"] == 100
    confirming = {seed for seed, _ in seeds(search, "confirm-quality")}
    assert len(confirming) == 4
    assert len({seed for seed, fewer in seeds(search, "quality") if not fewer}) == 2


def test_pairs_that_differ_are_still_refused(tmp_path) -> None:
    """Equal seeds help only where they make the arms alike."""
    search = searched(
        tmp_path, quality_of_pair=TOLERANCE / 10, quality_of_seed=2 * TOLERANCE, quality_draw=3
    )
    assert "n_timestep" not in search.values


class LuckyWhenChosen(RecordedEngine):
    """With fewer steps the figures are worse, but not with the seeds that choose."""

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        fewer = any(change.kind == "timesteps" for change in trial.candidate.changes)
        if fewer and int(dict(trial.env).get("GPU_ADVISOR_SEED", "0")) > 100:
            assert isinstance(run, Run)
            worse = {
                name: tuple(str(float(text) + 0.2) for text in texts)
                for name, texts in run.figures.items()
            }
            return replace(run, figures=worse)
        return run


def test_what_was_chosen_by_luck_is_refused_by_what_confirms(tmp_path) -> None:
    """The confirmation decides; the report says what it saw. No more than two rungs get one."""
    search = searched(tmp_path, LuckyWhenChosen, quality_noise=0.005)
    assert "n_timestep" not in search.values
    looks = [(j.stage, j.within) for _, j in search.state.quality.judgements]
    assert looks.count(("confirmed", False)) == 2
    reason = search.decisions["n_timestep"].reason
    assert "passed screening; with other seeds" in reason


def test_a_program_that_ignores_the_seed_proves_nothing_by_repeating(tmp_path) -> None:
    """Equal figures for other seeds are one run looked at several times."""
    search = searched(tmp_path, follows_seed=False, quality_noise=0.001)
    assert "n_timestep" not in search.values
    assert "GPU_ADVISOR_SEED" in search.decisions["n_timestep"].reason
    items = searched(tmp_path / "items", follows_seed=False, quality_noise=0.001, quality_items=8)
    assert "n_timestep" not in items.values


def test_where_the_seed_is_ignored_other_items_can_confirm(tmp_path) -> None:
    """One pair of runs, each item of which is a unit; the original did not run on those."""
    search = searched(
        tmp_path,
        follows_seed=False,
        quality_noise=0.005,
        quality_items=8,
        workload={"confirm-quality-command": "x --others"},
        launch_s=0.02,
    )
    assert {*search.values} == {"batch_size", "n_timestep"}
    assert search.state.quality.before == ()
    report = reported(search, tmp_path)
    (last,) = (each.judgement for each in report.quality if each.judgement.stage == "confirmed")
    assert report.before.quality == {last.measure: last.reference}
    assert report.after.quality == {last.measure: last.value}
    assert report.quality_note.startswith("Quality before is that of batch ")
    last = search.state.quality.judgements[-1][1]
    assert last.runs == 1
    assert last.items == 8
    assert last.stage == "confirmed"
    assert last.within


def test_one_figure_of_other_items_is_not_called_beyond_its_limit(tmp_path) -> None:
    """It lies inside; that it has no bounds is another reason, with another remedy."""
    search = searched(
        tmp_path,
        follows_seed=False,
        quality_noise=0.0,
        quality_items=1,
        workload={"confirm-quality-command": "x --others"},
    )
    reason = search.decisions["n_timestep"].reason
    assert "n_timestep" not in search.values
    assert "one figure has no bounds" in reason
    assert "beyond its limit" not in reason


def test_a_budget_that_cannot_hold_the_confirmation_leaves_the_free_part(tmp_path) -> None:
    """What is free is proven and written; the rung is named with what its confirmation takes."""
    search = searched(
        tmp_path,
        process_s=taking(1.0, quality=20.0),
        budget_s=140.0,
        quality_noise=0.02,
        quality_items=8,
        launch_s=0.02,
        text="batch_size: 1\nn_timestep: 1000\n",
    )
    assert search.values["batch_size"] > 1
    assert "n_timestep" not in search.values
    assert any("confirmation" in skipped.task.kind for skipped in search.state.skipped)
    assert search.state.quality.before == (), "the original did not run the quality command"
    assert search.executor.budget.remaining_s >= 0


def test_steps_that_the_budget_does_not_hold_say_so(tmp_path) -> None:
    """No more of them run once it is known; the quality that is missing is the next action."""
    text = "batch_size: 1\nn_timestep: 1000\n"
    search = searched(tmp_path, process_s=taking(1.0, quality=20.0), budget_s=100.0, text=text)
    assert len(search.asked("quality")) <= 1
    assert "the budget had no room for the run" in search.decisions["n_timestep"].reason
    assert any(each.task.kind == "quality-reference" for each in search.state.skipped)


def test_the_next_change_is_compared_with_the_runs_that_are_there(tmp_path) -> None:
    """The budget holds its own run; those of the reference are not asked for again."""
    switches, text = {"autocast=bfloat16": 1.6}, "batch_size: 1\nn_timestep: 1000\n"
    search = searched(
        tmp_path, process_s=taking(1.0, quality=10.0), budget_s=90.0, quality_noise=0.02, text=text,
        switches=switches, observed={"dtype": "float32"},
    )  # fmt: skip
    assert search.state.quality.judgements[-1][0] == "autocast bfloat16 in the code"


def test_precision_is_confirmed_by_losses_with_equal_seeds(tmp_path) -> None:
    """Of runs of both arms that did not choose; each round has a seed, the same for both."""
    text = "batch_size: 8\nprecision: fp32\n"
    search = searched(
        tmp_path,
        sampler=False,
        trains=True,
        quality=None,
        text=text,
        workload={"quality": {}, "numeric-tolerance": "1%", "phase": "train"},
    )
    assert search.values["precision"]
    asked = [a for a in search.asked("quality") if a.request.command == "own"]
    used = [
        (attempt.request.repeat, bool(attempt.request.variant.candidate.changes))
        for attempt in asked
    ]
    repeats = {repeat for repeat, _ in used}
    assert len(repeats) >= 2
    assert sorted(used) == sorted((r, changed) for r in repeats for changed in (False, True))


@pytest.mark.parametrize(("error", "taken"), [(0.002, True), (0.2, False)])
def test_precision_of_an_inference_is_held_by_its_outputs(tmp_path, error, *, taken) -> None:
    """Without losses: outputs of the first forwards, for the same inputs, in both precisions."""

    class Outputs(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            run = super().run(trial)
            half = any(change.kind == "precision" for change in trial.candidate.changes)
            out = tuple(
                tuple(i + j + error * half * (i + j) for j in range(4)) for i in range(1, 4)
            )
            seen = replace(run.effects, inputs=((1.0, 2.0),) * 3, outputs=out)  # type: ignore[arg-type]
            return replace(run, effects=seen)  # type: ignore[arg-type]

    search = searched(
        tmp_path,
        Outputs,
        sampler=False,
        quality=None,
        text="batch_size: 8\nprecision: fp32\n",
        workload={"quality": {}, "numeric-tolerance": "1%"},
    )
    assert ("precision" in search.values) is taken


def test_a_noisy_search_leaves_the_steps_the_time_that_judges_them(tmp_path) -> None:
    """Free settings alone could fill the budget: noise makes every point look worth a run."""
    text = "batch_size: 1\nnum_workers: 0\nn_timestep: 1000\n"
    noisy = {
        "noise": 0.2,
        "quality_noise": 1e-4,
        "launch_s": 0.02,
        "process_s": 8.0,
        "budget_s": 300.0,
    }
    judged = [
        bool(searched(tmp_path / str(seed), text=text, seed=seed, **noisy).asked("quality"))
        for seed in range(5)
    ]
    assert judged.count(True) >= 4


@pytest.mark.slow
def test_steps_worth_many_times_are_confirmed_in_what_a_batch_leaves(tmp_path) -> None:
    """Two rounds prove them, so a third one's time is the confirmation's. Before: 10 of 12."""
    text = "batch_size: 1\nnum_workers: 0\nn_timestep: 1000\n"
    paid = {"process_s": taking(7.0, quality=8.0), "quality_noise": 1e-4, "launch_s": 0.02}
    written = [
        "n_timestep"
        in searched(
            tmp_path / str(seed), text=text, seed=seed, noise=0.1, budget_s=300.0, **paid
        ).values
        for seed in range(12)
    ]
    assert written.count(True) >= 11


@pytest.mark.parametrize("budget_s", [150.0, 190.0, 230.0, 270.0])
def test_seeds_that_the_budget_left_unpaired_refute_nothing(tmp_path, budget_s) -> None:
    """Other seeds move both arms alike, which one pair alone cannot tell."""
    text = "batch_size: 1\nn_timestep: 1000\n"
    paid = {"process_s": taking(4.0, quality=12.0), "quality_noise": 0.03, "launch_s": 0.02}
    search = searched(tmp_path, text=text, budget_s=budget_s, **paid)
    assert "n_timestep" in search.values or "budget" in search.decisions["n_timestep"].reason
