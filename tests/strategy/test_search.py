"""The strategy on programs that are formulas: what it writes must be what the formula says."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advisor import strategy
from advisor.engines.formula import Formula
from advisor.engines.recorded import RecordedEngine
from advisor.experiments.attempts import Contest
from advisor.history import History
from advisor.model import Candidate
from advisor.report import curves, sentences
from advisor.report.model import QualityPoint
from advisor.strategy import next_turn
from advisor.strategy.asking import Turn
from advisor.strategy.facts import Facts
from advisor.strategy.standing import Standing
from benchmarks.formula_search import FormulaSearch, formula_search, on_formula
from tests.report import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.engines.noise import Values
    from advisor.model import Failure, Run, Trial

TRAINING = "batch_size: 4\nnum_workers: 0\naccumulation_steps: 8\nprecision: fp32\n"
INFERENCE = "batch_size: 1\nnum_workers: 0\n"
TEST = {"phase": "test"}
GUARD = {"numeric-tolerance": "1%"}
COMPUTING = {"load_s": 1e-6}
"""A loader that costs nothing."""


# --- the shape of the search ------------------------------------------------------------------


def test_the_same_answers_give_the_same_ask(tmp_path: Path) -> None:
    """`next_turn` is pure: replayed from any point, it asks what it asked."""
    search = formula_search(tmp_path, on_formula(noise=0.02), TRAINING)
    assert search.stop.reason == "done"
    for known in range(0, len(search.answers), 3):
        once, again = (next_turn(search.facts, search.answers[:known]) for _ in range(2))
        assert isinstance(once, Turn)
        assert once == again
    assert next_turn(search.facts, search.answers) == search.stop


def test_the_strategy_knows_no_clock_no_process_and_no_file() -> None:
    """None of its modules imports one."""
    for path in Path(strategy.__file__).parent.glob("*.py"):
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                named.add((node.module or "").partition(".")[0])
        assert not named & {"time", "datetime", "subprocess", "pathlib", "os", "io"}, path.name


def test_what_passes_through_the_stages_stays_small() -> None:
    """An object with more fields than twelve is a hub that everything writes to."""
    for noun in (Facts, Standing):
        assert len(dataclasses.fields(noun)) <= 12, noun.__name__


# --- loader -----------------------------------------------------------------------------------


def test_a_value_that_cannot_be_written_is_in_no_experiment(tmp_path: Path) -> None:
    """Of a Python config much is computed: a refused edit would end the whole call."""
    text = "batch_size = 1\ntest = dict(sample_num=2 * 8)\ndata = dict(image_size=2 * 112)\n"
    engine = on_formula(load_s=1e-6)
    search = formula_search(tmp_path, engine, text, name="train.py", workload={"phase": "test"})
    assert search.winner.changes
    assert "effects" not in {attempt.ask.purpose for attempt in search.lab.attempts}


def test_a_loader_bound_program_gets_workers_and_no_more_than_help(tmp_path: Path) -> None:
    """An item takes 4 ms to load and 0.75 ms in a batch of 16: six workers would do, seven are
    the fewest of those that are tried."""
    search = formula_search(tmp_path, on_formula(), TRAINING)
    assert search.values["num_workers"] == 7
    assert search.decisions["num_workers"].outcome == "changed"


class Crowded(Formula):
    """Workers and compute share the cores, which a loader measured alone does not tell."""

    def rate(self, values: Values, whatif: str | None = None) -> float:
        return super().rate(values, whatif) / (1 + 0.1 * float(values["num_workers"]))


def test_workers_that_take_the_cores_of_a_training_go(tmp_path: Path) -> None:
    """A run without noise that was 1.27 times as fast is no luck, although the loader alone would
    not tell why."""
    engine = RecordedEngine(Crowded(load_s=1e-5, process_s=1.0, step_kind="optimizer step"))
    text = "batch_size: 32\nnum_workers: 4\n"
    search = formula_search(tmp_path, engine, text)
    assert search.values["num_workers"] < 4


def test_of_loader_settings_that_tie_the_smallest_is_taken(tmp_path: Path) -> None:
    """One worker hides the loading as eight do."""
    engine = on_formula(load_s=0.0003, launch_s=0.001, unit_s=0.0003)
    search = formula_search(tmp_path, engine, "batch_size: 8\nnum_workers: 0\n", workload=TEST)
    assert search.values["num_workers"] == 1


def test_a_larger_batch_is_not_starved_by_the_fewest_workers(tmp_path: Path) -> None:
    """One worker keeps up with the original's batch and with no larger one."""
    engine = on_formula(load_s=0.0015, launch_s=0.003, unit_s=0.0001)
    search = formula_search(tmp_path, engine, "batch_size: 1\nnum_workers: 0\n", workload=TEST)
    assert search.values["num_workers"] >= 7
    assert search.values["batch_size"] >= 16


def test_a_second_look_at_the_loader_contradicts_nothing(tmp_path: Path) -> None:
    """Behind a larger batch the workers are tried again; what is told is what the file holds."""
    engine = on_formula(load_s=0.001, launch_s=0.02)
    search = formula_search(tmp_path, engine, "batch_size: 8\nnum_workers: 0\n", workload=TEST)
    assert search.values["num_workers"] == 2
    workers = search.decisions["num_workers"]
    assert (workers.outcome, workers.old, workers.new) == ("changed", 0, 2)


def test_a_value_may_go_back_to_what_the_config_says(tmp_path: Path) -> None:
    """With two CPUs every count is tried on each pass, the original's own among them."""
    engine = on_formula(load_s=0.002, launch_s=0.02)
    text = "batch_size: 8\nnum_workers: 0\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, cpus=2)
    assert search.stop.reason == "done"
    changed = {path for path, each in search.decisions.items() if each.outcome == "changed"}
    assert changed == set(search.values)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("text", [TRAINING, INFERENCE])
def test_changed_is_said_of_what_is_in_the_file_and_of_nothing_else(
    text: str, noise: float, tmp_path: Path
) -> None:
    """Whatever the draws: every change has a decision, and no decision a change that is not."""
    for seed in range(5):
        engine = on_formula(noise=noise, seed=seed, launch_s=0.02)
        (tmp_path / f"{seed}").mkdir()
        search = formula_search(tmp_path / f"{seed}", engine, text)
        told = {(d.document, d.path) for d in search.decisions.values() if d.outcome == "changed"}
        assert told == {(c.document, c.path) for c in search.winner.changes}
        assert all(sentences.why(decision) for decision in search.decisions.values())


def test_what_moves_along_has_a_decision_of_its_own(tmp_path: Path) -> None:
    """Without workers a DataLoader takes no prefetch_factor: it becomes null, and that is told."""
    engine = on_formula(load_s=0.004, contention=3.0)
    text = "num_workers: 4\nprefetch_factor: 2\nbatch_size: 8\n"
    search = formula_search(tmp_path, engine, text, workload=TEST)
    assert (search.values["num_workers"], search.values["prefetch_factor"]) == (0, None)
    moved = search.decisions["prefetch_factor"]
    assert (moved.outcome, moved.old, moved.new) == ("changed", 2, None)
    assert sentences.why(moved)


# --- batch ------------------------------------------------------------------------------------


def test_the_effective_batch_is_kept(tmp_path: Path) -> None:
    """A larger batch in training takes fewer accumulation steps along."""
    search = formula_search(tmp_path, on_formula(**COMPUTING), TRAINING)
    assert search.values["batch_size"] > 4
    assert search.values["batch_size"] * search.values["accumulation_steps"] == 32


def test_a_batch_past_the_flat_is_not_taken(tmp_path: Path) -> None:
    """Compute per item rules from the start, so larger ones ran and lost: unchanged."""
    engine = on_formula(load_s=1e-6, launch_s=1e-5, unit_s=0.01)
    search = formula_search(tmp_path, engine, "batch_size: 8\nnum_workers: 2\n", workload=TEST)
    assert search.values == {}
    assert search.decisions["batch_size"].outcome == "kept"
    assert len(search.asked("search")) >= 2
    assert not search.standing.skipped


def test_a_batch_that_memory_cannot_hold_is_refused_before_it_runs(tmp_path: Path) -> None:
    """The peaks of those that ran say what it would need."""
    engine = on_formula(load_s=1e-6, launch_s=1.0, unit_gib=1.0, base_gib=0.0)
    text = "batch_size: 2\nnum_workers: 2\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, memory_gib=10.0)
    why = sentences.why(search.decisions["batch_size"])
    assert max(each.values["batch_size"] for each in engine.asked) <= 8
    assert "16 needs about 16.00 GiB" in why
    assert "10.00 GiB usable" in why


def test_out_of_memory_ends_the_climb_at_what_ran(tmp_path: Path) -> None:
    """The largest that ran is taken, and the failure is named."""
    engine = on_formula(load_s=1e-6, launch_s=1.0, card_gib=2.0)
    search = formula_search(tmp_path, engine, TRAINING)
    assert search.values["batch_size"] == 8
    assert "gpu-oom" in sentences.why(search.decisions["batch_size"])


def test_an_ignored_knob_is_reported_and_not_changed(tmp_path: Path) -> None:
    """A knob counts only if the program followed it."""
    engine = on_formula(load_s=1e-6, ignored=frozenset({"batch_size"}))
    search = formula_search(tmp_path, engine, TRAINING)
    assert "batch_size" not in search.values
    assert search.decisions["batch_size"].outcome == "ignored"


def test_a_batch_that_the_data_cannot_fill_is_not_called_ignored(tmp_path: Path) -> None:
    """The loader was built with it: the program followed, and saw no more than there was."""
    engine = on_formula(load_s=1e-6, items=32)
    search = formula_search(tmp_path, engine, "batch_size: 32\nnum_workers: 0\n")
    assert search.values == {}
    assert search.decisions["batch_size"].outcome == "kept"
    told = sentences.why(search.decisions["batch_size"])
    assert "never filled a batch of 256: it saw 32" in told


@pytest.mark.parametrize(("items", "chosen"), [(32, 32), (48, 64)])
def test_a_batch_that_is_never_filled_stands_for_what_was_seen(
    tmp_path: Path, items: int, chosen: int
) -> None:
    """64 of 32 items is the same work as 32, whatever the clock said; 64 of 48 is not."""

    class Lucky(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            run = super().run(trial)
            lucky = run.effects.batch_asked == 64  # type: ignore[union-attr]
            return replace(run, units_per_s=1.5 * run.units_per_s) if lucky else run  # type: ignore[union-attr]

    engine = on_formula(Lucky, load_s=1e-6, launch_s=0.1, items=items)
    search = formula_search(tmp_path, engine, TRAINING.replace("8", "512"))
    assert search.values["batch_size"] == chosen


def test_a_noisy_host_does_not_stop_half_way_up_a_rising_curve(tmp_path: Path) -> None:
    """1778, 1969 and 1984 units/s at 64, 512 and 1024: what all runs together say is less noisy
    than one, so 10 % below the top is no tie, 1 % is."""
    search = formula_search(tmp_path, on_formula(load_s=1e-6), INFERENCE, host_noise=0.15)
    assert search.values["batch_size"] == 512


def test_a_training_batch_that_nothing_makes_up_for_is_only_advised(tmp_path: Path) -> None:
    """Effective batch is the user's: proven in rounds of its own, and never written."""
    engine = on_formula(load_s=1e-6, step_kind="optimizer step")
    search = formula_search(tmp_path, engine, "batch_size: 4\nnum_workers: 0\nlr: 0.1\n")
    assert search.values == {}
    assert search.decisions["batch_size"].outcome == "advised"
    assert search.standing.proposals[0].outcome is not None


# --- precision and steps ----------------------------------------------------------------------


def test_precision_needs_a_declared_guard(tmp_path: Path) -> None:
    """Without one it is listed, and no process is spent on it."""
    search = formula_search(tmp_path, on_formula(**COMPUTING), TRAINING)
    assert "precision" not in search.values
    assert search.decisions["precision"].outcome == "listed"


@pytest.mark.parametrize(("drift", "taken"), [(0.001, True), (0.2, False)])
def test_precision_is_taken_only_inside_the_guard(
    tmp_path: Path, drift: float, *, taken: bool
) -> None:
    """Losses of both runs are compared."""
    engine = on_formula(load_s=1e-6, bf16_drift=drift)
    search = formula_search(tmp_path, engine, TRAINING, workload=GUARD)
    assert ("precision" in search.values) is taken


@pytest.mark.parametrize(("added_rmse", "taken"), [(0.01, True), (0.2, False)])
def test_without_losses_precision_is_judged_by_the_quality_measure(
    tmp_path: Path, added_rmse: float, *, taken: bool
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
    quality = search.standing.quality
    assert ("precision" in search.values) is taken
    looks = [(judgement.stage, judgement.within) for _, judgement in quality.judgements]
    assert looks == ([("chosen", True), ("confirmed", True)] if taken else [("chosen", False)])
    assert dict(quality.before) == pytest.approx({"rmse": 0.5}, abs=1e-3)


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
        quality_name="rmse",
        **{"quality_noise": 1e-4, **more},
    )


def sampler_search(folder: Path, tolerance: str, **more: Any) -> FormulaSearch:
    budget_s = more.pop("budget_s", 1e9)
    engine = sampler(**more)
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": tolerance}}
    workload = {"phase": "test", "quality": measure}
    return formula_search(folder, engine, SAMPLER, workload=workload, budget_s=budget_s)


def test_steps_go_down_to_the_tolerance_and_take_their_schedule_along(tmp_path: Path) -> None:
    """RMSE is 0.5 + 10/n: at 5 % of 0.51 the limit is 0.5355, so 500 holds and 250 does not."""
    search = sampler_search(tmp_path, "5%")
    assert search.values["n_timestep"] == 500
    assert search.values["linear_end"] > 0.02
    assert search.decisions["linear_end"].outcome == "changed"
    judged = [
        (label.split()[-1], judgement.stage, judgement.within)
        for label, judgement in search.standing.quality.judgements
    ]
    assert judged == [
        ("n_timestep=50", "chosen", False),
        ("n_timestep=250", "chosen", False),
        ("n_timestep=500", "chosen", True),
        ("n_timestep=500", "confirmed", True),
    ]


def test_steps_stay_when_even_the_first_rung_is_out_of_tolerance(tmp_path: Path) -> None:
    """The free part is proven and written all the same."""
    search = sampler_search(tmp_path, "0.5%")
    assert "n_timestep" not in search.values
    assert search.values["batch_size"] > 2


def test_the_quality_curve_can_be_drawn_from_what_was_judged(tmp_path: Path) -> None:
    """Labels name each value, as the figure reads them."""
    search = sampler_search(tmp_path, "5%")
    points = [
        QualityPoint(
            measure=j.measure,
            candidate=label,
            value=j.value,
            reference=j.reference,
            limit=j.limit,
            within=j.within,
        )
        for label, j in search.standing.quality.judgements
    ]
    steps = next(c for c in search.winner.changes if c.kind == "timesteps")
    entry = next(c for c in examples.improved().changes if c.kind == "timesteps")
    entry = entry.model_copy(update={"path": steps.path, "from_": steps.old, "to": steps.new})
    (curve,) = curves.quality_curves(
        examples.improved(
            quality=points,
            changes=[entry],
            decisions=[examples.decision(steps.path, "timesteps", "changed", steps.old, steps.new)],
        )
    )
    assert set(curve.points) == {1000, 500, 250, 50}


def test_what_is_free_is_proven_before_quality_is_touched(tmp_path: Path) -> None:
    """The first contest is of free knobs alone, and no quality process ran before its end."""
    search = sampler_search(tmp_path, "5%")
    purposes = [attempt.ask.purpose for attempt in search.lab.attempts]
    assert purposes.index("confirm") < purposes.index("quality")
    first = search.standing.proofs[0].contest.after.arm.candidate
    assert first.changes
    assert all(change.knob_class == "free" for change in first.changes)


@pytest.mark.parametrize("budget_s", [40.0, 44.0, 48.0, 52.0])
def test_what_was_proven_is_written_though_the_budget_ends_later(
    budget_s: float, tmp_path: Path
) -> None:
    """Quality runs that take for ever cost the free part nothing."""
    engine = sampler(process_s=lambda trial: 30.0 if trial.purpose == "quality" else 1.0)
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": "5%"}}
    workload = {"phase": "test", "quality": measure}
    search = formula_search(tmp_path, engine, SAMPLER, workload=workload, budget_s=budget_s)
    assert search.values["batch_size"] > 2
    assert "n_timestep" not in search.values


# --- proof ------------------------------------------------------------------------------------


def test_a_failing_original_stops_everything(tmp_path: Path) -> None:
    """Nothing can be told of a program that does not run."""
    search = formula_search(tmp_path, on_formula(fails=lambda *_: "no-steps"), TRAINING)
    assert search.stop.reason == "baseline-failed"
    assert search.stop.failed is not None
    assert search.lab.processes == 1


def test_a_winner_that_fails_in_its_proof_is_not_written(tmp_path: Path) -> None:
    """And nothing of it is told as changed."""

    def fails(values: Values, trial: Trial) -> str | None:
        return "gpu-oom" if trial.purpose == "confirm" and values["batch_size"] > 4 else None

    search = formula_search(tmp_path, on_formula(load_s=1e-6, fails=fails), TRAINING)
    assert search.winner == Candidate()
    assert search.decisions["batch_size"].outcome == "kept"


def test_a_gain_inside_the_noise_is_not_proven(tmp_path: Path) -> None:
    """What looked faster by luck is run against the original, and loses."""
    wins = 0
    for seed in range(20):
        (tmp_path / f"{seed}").mkdir()
        again = on_formula(load_s=1e-6, launch_s=1e-6, unit_s=0.01, noise=0.1, seed=seed)
        search = formula_search(tmp_path / f"{seed}", again, INFERENCE, workload=TEST)
        wins += bool(search.winner.changes)
    assert wins <= 1


def test_a_noisy_host_gets_more_rounds_fixed_beforehand(tmp_path: Path) -> None:
    """By the noise and the gain that is to be proven, never by a look at the rounds."""

    def rounds(host_noise: float, launch_s: float) -> int:
        engine = on_formula(load_s=1e-6, launch_s=launch_s, unit_s=0.01)
        folder = tmp_path / f"{host_noise}-{launch_s}"
        folder.mkdir()
        search = formula_search(folder, engine, INFERENCE, workload=TEST, host_noise=host_noise)
        return next(a.contest.rounds for a in search.standing.proofs)

    assert rounds(0.02, 0.05) == 6
    assert rounds(0.3, 0.05) == 6
    assert 6 < rounds(0.1, 0.0012) <= 20


def test_the_winner_finishes_one_item_and_not_twice(tmp_path: Path) -> None:
    """Where quality is declared it does in the quality command, which costs nothing more."""
    search = sampler_search(tmp_path, "0.5%")
    winner = search.standing.proofs[-1].contest.after.arm.candidate
    assert not [a for a in search.asked("confirm") if a.ask.plan.whole_batches]
    quality = [a for a in search.asked("quality") if a.ask.arm.candidate == winner]
    assert {a.ask.plan.mode for a in quality} == {"whole"}


def test_the_proof_interleaves_and_flips_the_order(tmp_path: Path) -> None:
    """Fresh processes, the original first in odd rounds and last in even ones."""
    search = formula_search(tmp_path, on_formula(load_s=1e-6), TRAINING)
    original = [not a.ask.arm.candidate.changes for a in search.asked("confirm")]
    assert len(original) == 12
    assert original == [True, False, False, True] * 3
    assert not any(attempt.reused for attempt in search.asked("confirm"))


def test_what_trades_results_is_written_only_for_a_gain_of_its_own(tmp_path: Path) -> None:
    """A precision that gains 2 % is no gain beyond the free part, which stays."""
    for speedup, taken in ((1.5, True), (1.02, False)):
        folder = tmp_path / f"{speedup}"
        folder.mkdir()
        engine = on_formula(load_s=1e-6, bf16_speedup=speedup)
        search = formula_search(folder, engine, TRAINING, workload=GUARD)
        assert search.values["batch_size"] > 4
        assert ("precision" in search.values) is taken


# --- history ----------------------------------------------------------------------------------


def test_a_second_search_starts_no_process_but_the_baseline_and_the_proof(tmp_path: Path) -> None:
    """A proof is made of fresh processes; the rest is known."""
    engine = on_formula(load_s=1e-6)
    history = History(tmp_path / "history.sqlite")
    first = formula_search(tmp_path, engine, TRAINING, history=history)
    assert first.winner.changes
    again = formula_search(tmp_path, engine, TRAINING, history=history)
    assert again.winner.key == first.winner.key
    fresh = {a.ask.purpose for a in again.lab.attempts if not a.reused}
    assert fresh == {"baseline", "confirm"}


def test_history_of_another_speed_is_not_believed(tmp_path: Path) -> None:
    """The original is measured anew by every call; where it moved, the rest did too."""
    history = History(tmp_path / "history.sqlite")
    quick = formula_search(tmp_path, on_formula(load_s=1e-6), TRAINING, history=history)
    assert quick.winner.changes
    slower = on_formula(load_s=1e-6, launch_s=0.02, unit_s=0.0025)
    again = formula_search(tmp_path, slower, TRAINING, history=history)
    assert again.winner.changes
    assert not any(attempt.reused for attempt in again.asked("search"))


def test_contests_are_planned_before_their_first_round(tmp_path: Path) -> None:
    """An ask for rounds is asked once; the strategy sees nothing of it before its end."""
    search = formula_search(tmp_path, on_formula(), TRAINING)
    contests = []
    for known in range(len(search.answers)):
        turn = next_turn(search.facts, search.answers[:known])
        assert isinstance(turn, Turn)
        contests += [turn.ask] if isinstance(turn.ask, Contest) else []
    assert [c.rounds for c in contests] == [c.contest.rounds for c in search.lab.comparisons]


@pytest.mark.parametrize(("files", "taken"), [(lambda batch: batch, True), (lambda _: 1, False)])
def test_a_batch_that_loses_results_is_not_taken(
    files: Callable[[int], int], taken: bool, tmp_path: Path
) -> None:
    """One file a batch where there was one an item: said with both counts, and not written."""
    engine = on_formula(load_s=1e-6, files=files)
    search = formula_search(tmp_path, engine, "batch_size: 1\n", workload={"phase": "test"})
    assert ("batch_size" in search.values) is taken
    if not taken:
        assert "results would be lost" in sentences.why(search.decisions["batch_size"])


@pytest.mark.parametrize(("files", "taken"), [(lambda batch: batch, True), (lambda _: 1, False)])
def test_a_samplers_batch_that_loses_results_is_given_up_where_items_are_finished(
    files: Callable[[int], int], taken: bool, tmp_path: Path
) -> None:
    """In windows no item is; the quality runs finish the same items with both."""
    search = sampler_search(tmp_path, "50%", files=files)
    assert ("batch_size" in search.values) is taken
