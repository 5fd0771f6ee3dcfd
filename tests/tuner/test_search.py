"""The strategy on programs that are formulas: what it writes must be what the formula says."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import tuner as strategy
from advisor.history import History
from advisor.model import Failure, Run, Trial
from advisor.tuner.outcomes import Task
from advisor.tuner.pipeline import next_request
from advisor.tuner.search import decide_workers, ran_alone, start_grid
from advisor.tuner.stages import SearchStep
from advisor.tuner.throughput_model import Point, ThroughputModel
from tests.support.simulator.engine import Noise, RecordedEngine, Values
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.configs import INFERENCE, TEST, TRAINING


def test_the_same_answers_give_the_same_ask(tmp_path) -> None:
    """`next_request` is pure: replayed from any point, it asks what it asked."""
    search = formula_search(tmp_path, on_formula(noise=0.02), TRAINING)
    assert search.stop.reason == "done"
    for known in range(0, len(search.answers), 3):
        once, again = (next_request(search.context, search.answers[:known]) for _ in range(2))
        assert isinstance(once, SearchStep)
        assert once == again
    assert next_request(search.context, search.answers) == search.stop


def test_the_strategy_knows_no_clock_no_process_and_no_file() -> None:
    """None of its modules imports one."""
    for path in Path(strategy.__file__).parent.rglob("*.py"):
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                named.add((node.module or "").partition(".")[0])
        assert not named & {"time", "datetime", "subprocess", "pathlib", "os", "io"}, path.name


def test_a_loader_bound_program_gets_workers_and_no_more_than_help(tmp_path) -> None:
    """Six would do: 4 ms to load an item, 0.75 ms to compute it. Seven are the fewest tried."""
    search = formula_search(tmp_path, on_formula(), TRAINING)
    assert search.values["num_workers"] in {7, 8}  # 8 if it was confirmed first, and ties
    assert search.decisions["num_workers"].outcome == "changed"


def test_a_loader_that_is_waited_for_is_not_called_idle(tmp_path) -> None:
    """On one CPU no other count promises more."""
    search = formula_search(tmp_path, on_formula(load_s=0.05), "num_workers: 1\n", cpus=1)
    decision = search.decisions["num_workers"]
    assert decision.outcome == "kept"
    assert decision.reason.startswith("The program waits for data, and no other count promises")


class Crowded(Formula):
    """Workers and compute share the cores, which a loader measured alone does not tell."""

    def rate(self, values: Values, switches: Sequence[str] = ()) -> float:
        return super().rate(values, switches) / (1 + 0.1 * float(values["num_workers"]))


def test_workers_that_take_the_cores_of_a_training_go(tmp_path) -> None:
    """A run without noise that was 1.27 times as fast is no luck, although the loader alone would
    not tell why."""
    engine = RecordedEngine(Crowded(load_s=1e-5, process_s=1.0, step_kind="optimizer step"))
    text = "batch_size: 32\nnum_workers: 4\n"
    search = formula_search(tmp_path, engine, text)
    assert search.values["num_workers"] < 4


@dataclass(frozen=True, kw_only=True)
class CrowdedStep(Formula):
    """Workers take the CPUs that a step computes on: it takes longer, and loading does not."""

    first: float
    """Share by which the first worker lengthens a step."""
    further: float
    """Share by which each further one does."""

    def _costs(self, values: Values) -> tuple[int, float, float]:
        batch, step_s, load_s = super()._costs(values)
        workers = int(values["num_workers"])
        longer = 1 + self.first * min(workers, 1) + self.further * max(workers - 1, 0)
        return batch, step_s * longer, load_s


@pytest.mark.parametrize("seed", range(4))
def test_the_fastest_run_is_not_hidden_by_workers_that_crowd_the_step(tmp_path, seed) -> None:
    """As emberformer on two CPUs: a batch of 32 was 1.2 times as fast without workers as with one.

    The one was proven and written: the curve believed its form before the run.
    """
    surface = CrowdedStep(
        load_s=1 / 1070, launch_s=0.0049, unit_s=0.0007, first=1.6, further=1.2, process_s=5.0
    )
    engine = RecordedEngine(surface, noise=Noise(between=0.02), seed=seed)
    text = "num_workers: 0\nbatch_size: 4\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, cpus=2, gpu=False)
    assert "num_workers" not in search.values
    assert search.values["batch_size"] >= 32


@pytest.mark.parametrize("seed", range(4))
def test_no_workers_at_all_are_tried_where_they_take_the_cpus_of_the_step(tmp_path, seed) -> None:
    """As minGPT's adder: any workers make the step longer, and no run with some tells it."""
    surface = CrowdedStep(
        load_s=0.0001, launch_s=0.002, unit_s=0.0004, first=0.5, further=0.02, process_s=5.0
    )
    engine = RecordedEngine(surface, noise=Noise(between=0.02), seed=seed)
    search = formula_search(tmp_path, engine, "num_workers: 4\nbatch_size: 64\n", cpus=2, gpu=False)
    assert search.values["num_workers"] == 0


class Starved(Formula):
    """A loader measured alone promises more than the whole with workers gives."""

    def rate(self, values: Values, switches: Sequence[str] = ()) -> float:
        return super().rate(values, switches) * (0.25 if values["num_workers"] else 1.0)


@pytest.mark.parametrize("load_s", [0.004, 0.006])
def test_what_no_run_showed_to_be_faster_is_not_proven(tmp_path, load_s) -> None:
    """The model alone still hoped for it, and the proof took half of the budget."""
    engine = RecordedEngine(Starved(load_s=load_s, launch_s=0.02, unit_s=0.001))
    text = "num_workers: 0\nbatch_size: 8\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, cpus=2)
    proven = [each.request.variant.candidate for each in search.asked("confirm")]
    assert "num_workers" not in search.values
    assert not [c for each in proven for c in each.changes if c.knob.kind == "num_workers"]


@pytest.mark.parametrize("seed", range(6))
def test_one_other_worker_count_is_tried_where_nobody_waits(tmp_path, seed) -> None:
    """On an unsteady machine four of them ran, for a program that waits 0 % of its time."""
    engine = on_formula(load_s=1e-6, launch_s=0.02, noise=0.2, seed=seed, process_s=6.0)
    text = "batch_size: 1\nnum_workers: 4\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, budget_s=300.0)
    assert all((run.wait_share or 0.0) < 0.03 for run in search.state.originals)
    tried = {a.run.effects.workers for a in search.asked("search") if a.run is not None}
    assert len(tried - {4}) <= 1


def test_of_loader_settings_that_tie_the_smallest_is_taken(tmp_path) -> None:
    """One worker hides the loading as eight do."""
    engine = on_formula(load_s=0.0003, launch_s=0.001, unit_s=0.0003)
    search = formula_search(tmp_path, engine, "batch_size: 8\nnum_workers: 0\n", workload=TEST)
    assert search.values["num_workers"] == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("noise", "workers"), [(0.02, 0), (0.05, 4), (0.1, 12)])
def test_workers_that_gain_nothing_stay_as_they_are(tmp_path, seed, noise, workers) -> None:
    """Beside a batch that gains much, too: no single run makes them ride along."""
    engine = on_formula(load_s=1e-6, launch_s=0.02, noise=noise, seed=seed)
    text = f"batch_size: 1\nnum_workers: {workers}\n"
    search = formula_search(tmp_path, engine, text, workload=TEST)
    assert set(search.values) == {"batch_size"}


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_gains_nothing_stays_as_it_is(tmp_path, seed) -> None:
    """Beside workers that gain much; where no run shows its own effect, one more does."""
    engine = on_formula(load_s=0.004, launch_s=1e-6, unit_s=0.001, noise=0.02, seed=seed)
    search = formula_search(tmp_path, engine, "batch_size: 8\nnum_workers: 0\n", workload=TEST)
    assert set(search.values) == {"num_workers"}


def test_a_larger_batch_is_not_starved_by_the_fewest_workers(tmp_path) -> None:
    """One worker keeps up with the original's batch and with no larger one."""
    engine = on_formula(load_s=0.0015, launch_s=0.003, unit_s=0.0001)
    search = formula_search(tmp_path, engine, "batch_size: 1\nnum_workers: 0\n", workload=TEST)
    assert search.values["num_workers"] >= 7
    assert search.values["batch_size"] >= 16
    both = {a.id for a in search.asked("search") if len(a.request.variant.candidate.changes) > 1}
    assert both
    assert all(both <= {*search.decisions[name].trials} for name in search.values)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("text", [TRAINING, INFERENCE])
def test_changed_is_said_of_what_is_in_the_file_and_of_nothing_else(text, noise, tmp_path) -> None:
    """Whatever the draws: every change has a decision, and no decision a change that is not."""
    for seed in range(5):
        engine = on_formula(noise=noise, seed=seed, launch_s=0.02)
        search = formula_search(tmp_path / f"{seed}", engine, text)
        changed = {
            (d.document, d.path) for d in search.decisions.values() if d.outcome == "changed"
        }
        assert changed == {(c.document, c.path) for c in search.winner.changes}
        assert all(decision.reason for decision in search.decisions.values())


def test_what_moves_along_has_a_decision_of_its_own(tmp_path) -> None:
    """Without workers a DataLoader takes no prefetch_factor: it becomes null, and that is told."""
    engine = on_formula(load_s=0.004, contention=3.0)
    text = "num_workers: 4\nprefetch_factor: 2\nbatch_size: 8\n"
    search = formula_search(tmp_path, engine, text, workload=TEST)
    assert search.values["num_workers"] == 0
    assert search.values["prefetch_factor"] is None
    moved = search.decisions["prefetch_factor"]
    assert moved.outcome == "changed"
    assert moved.old == 2
    assert moved.new is None
    assert moved.reason


def test_a_batch_that_memory_cannot_hold_is_refused_before_it_runs(tmp_path) -> None:
    """The peaks of those that ran say what it would need."""
    engine = on_formula(load_s=1e-6, launch_s=1.0, unit_gib=1.0, base_gib=0.0)
    text = "batch_size: 2\nnum_workers: 2\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, memory_gib=10.0)
    why = search.decisions["batch_size"].reason
    assert max(each.values["batch_size"] for each in engine.asked) <= 8
    assert "16 needs about 16.00 GiB" in why
    assert "10.00 GiB usable" in why


def biased(batch: int, factor: float) -> type[RecordedEngine]:
    """Engine whose runs at one batch are faster by `factor`."""

    class Biased(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            run = super().run(trial)
            if isinstance(run, Run) and run.effects.batch_asked == batch:
                return replace(run, units_per_s=factor * run.units_per_s)
            return run

    return Biased


@pytest.mark.parametrize(("tells", "tried", "factor"), [(0, 4, 1), (1, 16, 1), (0, 4, 0.5)])
def test_a_large_model_is_no_reason_for_a_small_batch(tmp_path, tells, tried, factor) -> None:
    """Parameters do not grow with it. A slow run at twice the batch is not the end."""
    memory = {"base_gib": 8.0, "unit_gib": 0.25, "tells_footprint": bool(tells)}
    engine = on_formula(biased(4, factor), load_s=1e-6, launch_s=0.01, **memory)
    search = formula_search(tmp_path, engine, "batch_size: 2\n", workload=TEST, memory_gib=20.0)
    batches = [each.values["batch_size"] for each in engine.asked]
    assert next(batch for batch in batches if batch != 2) == tried
    assert max(batches) == search.values["batch_size"] == 32


def test_out_of_memory_ends_the_climb_at_what_ran(tmp_path) -> None:
    """The largest that ran is taken. Fewer accumulation steps keep a training's update of 32."""
    engine = on_formula(load_s=1e-6, launch_s=1.0, card_gib=2.0)
    search = formula_search(tmp_path, engine, TRAINING)
    assert search.values["batch_size"] == 8
    assert search.values["accumulation_steps"] == 4
    assert "gpu-oom" in search.decisions["batch_size"].reason


@pytest.mark.parametrize("items", [32, 48])
def test_a_batch_that_is_never_filled_is_not_taken(tmp_path, items) -> None:
    """64 of 32 items is the same work as 32, whatever the clock said."""
    engine = on_formula(biased(64, 1.5), load_s=1e-6, launch_s=0.1, items=items)
    search = formula_search(tmp_path, engine, TRAINING.replace("8", "512"))
    assert search.values["batch_size"] == 32


def test_a_failing_original_stops_everything(tmp_path) -> None:
    """Nothing can be told of a program that does not run."""
    search = formula_search(tmp_path, on_formula(fails=lambda *_: "no-steps"), TRAINING)
    assert search.stop.reason == "baseline-failed"
    assert search.stop.failed is not None
    assert len(search.executor.attempts) == 1


def test_history_of_another_speed_is_not_believed(tmp_path) -> None:
    """The original is measured anew by every call; where it moved, the rest did too."""
    history = History(tmp_path / "history.sqlite")
    quick = formula_search(tmp_path, on_formula(load_s=1e-6), TRAINING, history=history)
    assert quick.winner.changes
    slower = on_formula(load_s=1e-6, launch_s=0.02, unit_s=0.0025)
    again = formula_search(tmp_path, slower, TRAINING, history=history)
    assert again.winner.changes
    assert not any(attempt.reused for attempt in again.asked("search"))


LOADS: dict[str, Any] = {"load_s": 1e-6}
TRAINED: dict[str, Any] = {
    "observed": {"trains": "optimizer"},
    "step_kind": "optimizer step",
    **LOADS,
}


@pytest.mark.parametrize("name", ["validation_batch_size", "test_batch_size"])
@pytest.mark.parametrize("train", ["batch_size: 4\n", ""])
def test_a_setting_of_evaluation_is_not_tried_while_the_program_trains(
    tmp_path, name, train
) -> None:
    """No phase is declared; the steps that were seen are those of a training."""
    search = formula_search(tmp_path, on_formula(**TRAINED), f"{train}{name}: 16\nlr: 0.1\n")
    tried = {c.path for a in search.executor.attempts for c in a.request.variant.candidate.changes}
    assert name not in tried
    assert search.decisions[name].reason.startswith("Belongs to the ")
    assert "what was measured here is train" in search.decisions[name].reason


def test_a_setting_of_training_is_not_called_ignored_by_a_program_that_tests(tmp_path) -> None:
    """It stands in for the one that is missing, and is not followed: the loader of a training was
    never seen."""
    engine = on_formula(coded={"batch_size": 4}, ignored=frozenset({"batch_size"}), **LOADS)
    text = "train:\n  batch_size: 16\n"
    search = formula_search(tmp_path, engine, text, workload={"phase": "test"})
    assert search.decisions["batch_size"].reason.startswith("Belongs to the ")


@pytest.mark.parametrize(
    ("seen", "expected"), [(4, "the program's argument --batch_size 4 is used"), (32, None)]
)
def test_an_argument_with_the_value_that_was_tried_overrides_nothing(
    tmp_path, seen, expected
) -> None:
    """What the arguments are is set against what was asked for, not against the config's own."""
    asked: dict[str, Any] = {"arguments": (("batch_size", seen),)}
    engine = on_formula(ignored=frozenset({"batch_size"}), observed=asked, **LOADS)
    search = formula_search(tmp_path, engine, "batch_size: 4\n")
    decision = search.decisions["batch_size"]
    assert decision.outcome == "ignored"
    assert (expected or "") in decision.reason


def test_between_a_batch_and_a_slower_larger_one_more_may_be_gained() -> None:
    """Where caches overflow the best lies between them (rates of a text tagger on two cores); by a
    launch and a compute alone it would be the largest."""
    rates = {1: 1180.0, 8: 4302.0, 64: 3846.0}
    surface = ThroughputModel(
        tuple(Point(batch=b, workers=0, rate=r, wait_share=0.0) for b, r in rates.items()), (), 0.05
    )
    best = max(surface.at(batch, 0).log_rate for batch in rates)
    gains = {batch: surface.at(batch, 0).improvement(best) for batch in (2, 16, 32, 128, 512)}
    assert max(gains, key=lambda batch: gains[batch]) in {16, 32}
    assert max(gains.values()) > 0.03
    assert gains[512] < gains[128] < 0.01


def test_a_run_that_collapsed_is_run_again_before_it_is_believed(tmp_path) -> None:
    """The first candidate ran at a tenth of its rate: the second draw is what counts."""
    slow = {2}
    engine = on_formula(
        load_s=1e-6, slowed=10.0, held=lambda process, _: 1.0 if process in slow else 0.0
    )
    untold = formula_search(tmp_path, engine, "batch_size: 1\n", workload={"phase": "test"})
    assert untold.values["batch_size"] > 16
    assert len(untold.asked("search")) <= 8


def test_a_first_baseline_that_no_later_run_comes_near_hides_no_gain(tmp_path) -> None:
    """The machine was idle for that one run, and is eight times as slow since."""
    engine = on_formula(load_s=1e-6, slowed=8.0, held=lambda process, _: 1.0 if process else 0.0)
    search = formula_search(tmp_path, engine, "batch_size: 1\n", workload={"phase": "test"})
    rates = sorted(run.units_per_s for run in search.state.originals)
    assert rates[-1] > 4 * rates[-2], "the first one is the stray"
    assert search.values["batch_size"] > 16
    assert search.state.original.units_per_s == rates[-2]
    assert search.state.noise < 0.5


def test_only_the_first_baseline_looks_at_the_parts_and_all_of_them_know(tmp_path) -> None:
    """The parts take longer than the window, and the others are there for the rate."""
    search = formula_search(tmp_path, on_formula(load_s=0.05), INFERENCE)
    plans = [each.request.plan for each in search.asked("baseline")]
    assert len(plans) > 1
    assert [bool(plan.ceilings_workers) for plan in plans] == [True] + [False] * (len(plans) - 1)
    assert len({run.ceilings for run in search.state.originals}) == 1
    assert search.state.original.ceilings


@pytest.mark.parametrize(("copies", "pinned"), [(0.2, True), (0.01, False)])
def test_memory_is_pinned_where_a_card_waits_for_copies(tmp_path, copies, pinned) -> None:
    """Although the program never waits for its loader."""
    engine = on_formula(load_s=1e-6, flags={"pin_memory": 1.2}, copies=copies)
    text = "batch_size: 8\nnum_workers: 0\npin_memory: false\n"
    search = formula_search(tmp_path, engine, text, gpu=True)
    assert search.values.get("pin_memory", False) is pinned
    if not pinned:
        assert "copies to the GPU 1.0 %: too little" in search.decisions["pin_memory"].reason


@pytest.mark.parametrize(
    ("points", "batch", "workers"),
    [
        ({(1, 0): None, (8, 2): None}, False, False),
        ({(1, 0): None, (8, 2): None, (8, 0): None}, True, True),
        ({(1, 0): None, (1, 2): None, (8, 4): None}, False, True),
    ],
)
def test_a_value_that_moved_with_another_did_not_run_alone(points, batch, workers) -> None:
    """`No value tested was faster` is said of none of these: the other may have hidden its gain."""
    grid = SimpleNamespace(runs=points)
    assert ran_alone(grid, 0) is batch
    assert ran_alone(grid, 1) is workers


@pytest.mark.parametrize("unit_s", [0.0005, 0.002, 0.004])
@pytest.mark.parametrize("launch_s", [0.001, 0.02])
def test_the_first_trial_moves_one_knob(tmp_path, launch_s, unit_s) -> None:
    """A run with another batch and other workers tells of neither; accumulation only follows."""
    engine = on_formula(process_s=8.0, load_s=0.002, launch_s=launch_s, unit_s=unit_s)
    search = formula_search(tmp_path, engine, TRAINING, budget_s=300.0)
    first = search.asked("search")[0].request.variant.candidate
    assert len({change.kind for change in first.changes} - {"grad_accum"}) == 1


def test_knobs_that_need_each_other_move_together_where_few_trials_are_left(tmp_path) -> None:
    engine = on_formula(process_s=20.0, load_s=0.002, launch_s=0.02)
    search = formula_search(tmp_path, engine, TRAINING, budget_s=240.0)
    assert search.winner.changes
    first = search.asked("search")[0].request.variant.candidate
    assert {change.kind for change in first.changes} >= {"batch_size", "num_workers"}


def test_a_budget_that_something_else_lacked_is_no_reason_for_the_workers(tmp_path) -> None:
    """A skipped quality run tells nothing of workers: no count promised a gain."""
    search = formula_search(tmp_path, on_formula(load_s=0.05), "num_workers: 1\n", cpus=1)
    state = search.state.skip(Task("quality", "something else"), 60.0)
    (knob,) = state.of_kind("num_workers")
    grid = start_grid(state, None, knob)
    for cut_short, cause in ((False, "no-value-known"), (True, "out-of-budget")):
        ended = replace(grid, cut_short=cut_short)
        decided = decide_workers(state, ended, knob, grid.start).verdict_on(knob)
        assert decided is not None
        assert decided.cause == cause


def test_a_pass_of_few_batches_keeps_few_workers_busy(tmp_path) -> None:
    """256 items that workers wait for: 16 of them load four at a time, and 32 with half as many.

    Batches of 32 and 256 were run with 16 all the same, the last for a minute, and 16 never was.
    """

    class FewBatches(Formula):
        def _load_s(self, batch: int, workers: int) -> float:
            return super()._load_s(batch, min(workers, max(1, 256 // batch)))

    surface = FewBatches(
        load_s=0.008, load_cpu_s=0.0004, launch_s=0.001, unit_s=0.0004, process_s=5.0,
        observed={"data_items": 256}, coded={}, own_count_alone=False,
    )  # fmt: skip
    engine = RecordedEngine(surface, noise=Noise(between=0.02), seed=1)
    text = "num_workers: 0\nbatch_size: 4\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, cpus=2, budget_s=600.0)
    ran = [dict(each.values) for each in engine.asked]
    assert all(each["batch_size"] * each["num_workers"] <= 256 for each in ran)
    assert (search.values["batch_size"], search.values["num_workers"]) == (16, 16)


def test_a_run_is_believed_before_a_curve_that_misses_the_runs() -> None:
    """The noise is 3 %, and the form is off by a half: the forecasts are what ran."""
    loads = ((0, 1070.0), (1, 1070.0), (2, 2140.0))
    ran = {(4, 0): (353.0, 0.33), (32, 0): (617.0, 0.47), (32, 2): (326.0, 0.04)}
    ran |= {(32, 1): (514.0, 0.045)}
    points = tuple(
        Point(batch=batch, workers=workers, rate=rate, wait_share=wait)
        for (batch, workers), (rate, wait) in ran.items()
    )
    model = ThroughputModel(points, loads, 0.03)
    for (batch, workers), (rate, _) in ran.items():
        assert math.exp(model.at(batch, workers).log_rate) == pytest.approx(rate, rel=0.03)
