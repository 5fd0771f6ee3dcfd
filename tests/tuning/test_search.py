"""The strategy on programs that are formulas: what it writes must be what the formula says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor import documents, knobs
from advisor.documents.argv import join
from advisor.errors import TrialFailedError
from advisor.history import History
from advisor.model import Candidate, Change
from advisor.settings import Workload
from advisor.state import state_folder
from advisor.tuning import precision, stages, steps
from advisor.tuning.confirm import (
    Confirmation,
    affordable_arms,
    arms_of,
    confirm,
    cost_s,
    planned_rounds,
    proven,
    proven_candidate,
    reserve_s,
)
from advisor.tuning.guard import Guard
from advisor.tuning.program import COMMAND_LINE, Program
from advisor.tuning.runner import Runner
from advisor.tuning.search import Search, Source
from advisor.versions import Versions
from benchmarks import surfaces as formulas
from benchmarks.surfaces import Quiet, Surface

if TYPE_CHECKING:
    from pathlib import Path

TRAINING = "batch_size: 4\nnum_workers: 0\naccumulation_steps: 8\nprecision: fp32\n"
INFERENCE = "test:\n  batch_size: 1\n"


def search_for(
    tmp_path: Path,
    surface: Surface,
    text: str,
    *,
    workload: dict[str, Any] | None = None,
    memory_gib: float = 1e9,
    budget_s: float = 1e9,
    gpu: bool = True,
) -> Search:
    """A search over `text` whose trials are answered by `surface`."""
    config = tmp_path / "train.yaml"
    if not config.exists():
        config.write_text(text)
    document = documents.read(config)
    command = documents.parse(join(["python", "train.py", "-c", str(config)]), "argv", COMMAND_LINE)
    runner = Runner(
        engine=surface,
        history=History(state_folder(tmp_path) / "h.sqlite"),
        machine_key="m",
        program_key="p",
        program=Program(config=document, command_line=command, cwd=tmp_path, unit="item"),
        scratch=formulas.scratch(tmp_path),
        budget_s=budget_s,
        listener=Quiet(),
    )
    return Search(
        runner=runner,
        sources=tuple(Source(document=d, findings=knobs.find(d)) for d in (document, command)),
        workload=Workload.model_validate({"command": "x", "unit": "item", **(workload or {})}),
        machine=formulas.MACHINE,
        memory_limit_gib=memory_gib,
        memory_owner="a made-up card",
        precisions=("float32", "bfloat16"),
        has_gpu=gpu,
        smallest_gain=0.03,
    )


def guard_of(search: Search) -> Guard:
    """The guard of what the workload declares; its quality command is the command itself."""
    program = search.runner.program
    versions = Versions(state_folder(program.cwd), program.cwd / "train.yaml")
    return Guard(search=search, command=program.command_line, versions=versions)


def tuned(search: Search) -> dict[str, Any]:
    """Run every stage without quality measures; the values of the best candidate by key."""
    stages.measure_baseline(search)
    stages.measure_ceilings(search)
    stages.tune_free_and_training(search)
    precision.tune_precision(search, guard_of(search))
    return {c.path.rsplit(".", 1)[-1]: c.new for c in search.best_candidate.changes}


def test_a_loader_bound_program_gets_workers_and_no_more_than_help(tmp_path: Path) -> None:
    """One item takes 4 ms to load and the step 6 ms for 4: three workers are not on the ladder."""
    search = search_for(tmp_path, Surface(), TRAINING)
    values = tuned(search)
    assert values["num_workers"] in {2, 4, 7, 8}
    assert search.decisions[(str(tmp_path / "train.yaml"), "num_workers")].outcome == "changed"


def test_the_effective_batch_is_kept(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(load_s=1e-6), TRAINING)
    values = tuned(search)
    assert values["batch_size"] > 4
    assert values["batch_size"] * values.get("accumulation_steps", 8) == 32


def test_a_batch_past_the_flat_is_not_taken(tmp_path: Path) -> None:
    """Ties go to the smallest: compute per item rules from the start, so nothing changes."""
    search = search_for(
        tmp_path,
        Surface(load_s=1e-6, launch_s=1e-5, unit_s=0.01),
        "batch_size: 8\nnum_workers: 2\n",
        workload={"phase": "test"},
    )
    assert tuned(search) == {}
    decision = search.decisions[(str(tmp_path / "train.yaml"), "batch_size")]
    assert decision.outcome == "kept"


def test_a_batch_that_memory_cannot_hold_is_refused_before_it_runs(tmp_path: Path) -> None:
    surface = Surface(load_s=1e-6, launch_s=1.0, unit_gib=1.0, base_gib=0.0)
    search = search_for(
        tmp_path,
        surface,
        "batch_size: 2\nnum_workers: 2\n",
        workload={"phase": "test"},
        memory_gib=10.0,
    )
    tuned(search)
    tried = {values["batch_size"] for _, values in surface.seen}
    assert max(tried) <= 8
    whys = " ".join(d.why for d in search.decisions.values())
    assert "16 needs about 16.00 GiB" in whys
    assert "10.00 GiB usable on a made-up card" in whys


def test_out_of_memory_ends_the_climb_at_what_ran(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(load_s=1e-6, launch_s=1.0, oom_gib=2.0), TRAINING)
    values = tuned(search)
    assert values["batch_size"] == 8
    decision = search.decisions[(str(tmp_path / "train.yaml"), "batch_size")]
    assert "gpu-oom" in decision.why


def test_an_ignored_knob_is_reported_and_not_changed(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(load_s=1e-6, ignored=frozenset({"batch_size"})), TRAINING)
    assert "batch_size" not in tuned(search)
    decision = search.decisions[(str(tmp_path / "train.yaml"), "batch_size")]
    assert decision.outcome == "ignored"


def test_a_batch_that_the_data_cannot_fill_is_not_called_ignored(tmp_path: Path) -> None:
    """The loader was built with it: the program followed, and saw no more than there was."""
    search = search_for(
        tmp_path, Surface(load_s=1e-6, items=32), "batch_size: 32\nnum_workers: 0\n"
    )
    assert tuned(search) == {}
    decision = next(d for d in search.decisions.values() if d.kind == "batch_size")
    assert decision.outcome == "kept"
    assert "never filled a batch of 64: it saw 32" in decision.why


@pytest.mark.parametrize(("items", "chosen"), [(32, 32), (48, 64)])
def test_a_batch_that_is_never_filled_stands_for_what_was_seen(
    tmp_path: Path, items: int, chosen: int
) -> None:
    """64 of 32 items is the same work as 32, whatever the clock said; 64 of 48 is not."""

    class Lucky(Surface):
        def run(self, trial):  # type: ignore[no-untyped-def]
            run = super().run(trial)
            lucky = run.effects.batch_asked == 64
            return replace(run, units_per_s=1.5 * run.units_per_s) if lucky else run

    surface = Lucky(load_s=1e-6, launch_s=0.1, items=items)
    assert (
        tuned(search_for(tmp_path, surface, TRAINING.replace("8", "512")))["batch_size"] == chosen
    )


def test_a_noisy_host_does_not_stop_half_way_up_a_rising_curve(tmp_path: Path) -> None:
    """1778, 1882 and 1969 units/s at 64, 128 and 512: 10 % below the top is no level, 5 % is."""
    text = "batch_size: 1\nnum_workers: 0\n"
    search = search_for(tmp_path, Surface(load_s=1e-6), text)
    stages.measure_baseline(search)
    search.noise = 0.15
    stages.tune_free_and_training(search)
    assert search.current(search.of_kind("batch_size")[0]) == 128


def test_precision_needs_a_declared_guard(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(load_s=1e-6), TRAINING)
    assert "precision" not in tuned(search)
    assert search.decisions[(str(tmp_path / "train.yaml"), "precision")].outcome == "listed"


@pytest.mark.parametrize(("drift", "taken"), [(0.001, True), (0.2, False)])
def test_precision_is_taken_only_inside_the_guard(
    tmp_path: Path, drift: float, taken: bool
) -> None:
    search = search_for(
        tmp_path,
        Surface(load_s=1e-6, bf16_drift=drift),
        TRAINING,
        workload={"numeric-tolerance": "1%"},
    )
    assert ("precision" in tuned(search)) is taken


@pytest.mark.parametrize(("added_rmse", "taken"), [(0.01, True), (0.2, False)])
def test_without_losses_precision_is_judged_by_the_quality_measure(
    tmp_path: Path, added_rmse: float, *, taken: bool
) -> None:
    surface = Surface(load_s=1e-6, trains=False, rmse_of_steps=lambda _: 0.5, bf16_rmse=added_rmse)
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": "5%"}}
    search = search_for(tmp_path, surface, TRAINING, workload={"quality": measure})
    assert ("precision" in tuned(search)) is taken
    assert [j.within for _, j in search.judgements] == [taken]
    assert search.quality_before == {"rmse": 0.5}


def test_a_noisy_host_gets_more_rounds_fixed_beforehand(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(load_s=1e-6), TRAINING)
    stages.measure_baseline(search)
    assert planned_rounds(search, arms=2, expected_ratio=1.5) == 6
    assert planned_rounds(search, arms=2, expected_ratio=1.1) == 10
    search.noise = 0.3
    noisy = planned_rounds(search, arms=2, expected_ratio=1.5)
    assert 6 < noisy <= 20
    search.runner.budget_s = search.runner.spent_s + 8.5 / 6 * cost_s(search, 2, 1.5)
    assert planned_rounds(search, arms=2, expected_ratio=1.5) == min(8, noisy)


def test_a_failing_original_stops_everything(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(fail_on=lambda _: "no-steps"), TRAINING)
    with pytest.raises(TrialFailedError) as stop:
        stages.measure_baseline(search)
    assert stop.value.exit_code == 38


SAMPLER = (
    "num_workers: 0\nbatch_size: 2\nsampler:\n  n_timestep: 1000\n"
    "  linear_start: 0.0001\n  linear_end: 0.02\nsteps: 1000\n"
)


class Sampler(Surface):
    """An iterative sampler whose steps stand in the config as `sampler.n_timestep`."""

    def run(self, trial):  # type: ignore[no-untyped-def]
        import yaml

        tree = yaml.safe_load(trial.files[0].content)
        tree["steps"] = tree["sampler"]["n_timestep"]
        from dataclasses import replace

        from advisor.model import TrialFile

        flat = TrialFile(original=trial.files[0].original, content=yaml.safe_dump(tree).encode())
        return super().run(replace(trial, files=(flat,)))


def sampler_search(tmp_path: Path, tolerance: str, **more: Any) -> Search:
    surface = Sampler(
        load_s=1e-6, forwards_per_step=1, rmse_of_steps=lambda n: 0.5 + 10 / n, **more
    )
    return search_for(
        tmp_path,
        surface,
        SAMPLER,
        workload={
            "phase": "test",
            "quality": {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": tolerance}},
        },
    )


def descend(search: Search) -> None:
    stages.measure_baseline(search)
    stages.tune_free_and_training(search)
    steps.tune_steps(search, guard_of(search))


def test_steps_go_down_to_the_tolerance_and_take_their_schedule_along(tmp_path: Path) -> None:
    """RMSE is 0.5 + 10/n: at 5 % of 0.51 the limit is 0.5355, so 500 holds and 250 does not."""
    search = sampler_search(tmp_path, "5%")
    descend(search)
    values = {c.path.rsplit(".", 1)[-1]: c.new for c in search.best_candidate.changes}
    assert values["n_timestep"] == 500
    assert values["linear_end"] > 0.02
    measured = {label: j.within for label, j in search.judgements}
    assert measured == {"500 steps": True, "250 steps": False}


def test_steps_stay_when_even_the_first_rung_is_out_of_tolerance(tmp_path: Path) -> None:
    search = sampler_search(tmp_path, "0.5%")
    descend(search)
    assert all(c.kind != "timesteps" for c in search.best_candidate.changes)


def test_the_budget_ends_the_search_and_says_what_was_left(tmp_path: Path) -> None:
    search = search_for(tmp_path, Surface(load_s=1e-6), TRAINING, budget_s=0.5)
    stages.measure_baseline(search)
    stages.tune_free_and_training(search)
    assert search.skipped
    assert search.best_candidate == Candidate()


def test_a_process_that_takes_too_long_ends_with_the_budget(tmp_path: Path) -> None:
    """Its limit is what is left, or a few times what it was to take; the baseline's is not."""
    limits: list[float] = []

    class Slow(Surface):
        def run(self, trial):  # type: ignore[no-untyped-def]
            limits.append(trial.total_limit_s)
            return super().run(trial)

    late = Slow(load_s=1e-6, fail_on=lambda values: values["batch_size"] > 4 and "timeout")
    search = search_for(tmp_path, late, TRAINING, budget_s=50.0)
    stages.measure_baseline(search)
    stages.tune_free_and_training(search)
    assert limits[:2] == [600.0, 600.0]
    assert limits[2] < 50.0
    assert search.cut_short
    assert any("batch_size" in skipped for skipped in search.skipped)


def test_a_second_search_starts_no_process_but_the_baseline(tmp_path: Path) -> None:
    surface = Surface(load_s=1e-6)
    first = search_for(tmp_path, surface, TRAINING)
    tuned(first)
    again = search_for(tmp_path, surface, TRAINING)
    tuned(again)
    assert again.runner.processes == 2
    assert again.best_candidate.key == first.best_candidate.key


def test_history_of_another_speed_is_not_believed(tmp_path: Path) -> None:
    tuned(search_for(tmp_path, Surface(load_s=1e-6), TRAINING))
    slower = Surface(load_s=1e-6, launch_s=0.02, unit_s=0.0025)
    again = search_for(tmp_path, slower, TRAINING)
    tuned(again)
    assert again.runner.processes > 4
    assert any("set aside" in note for note in again.notes)


def test_what_is_kept_back_for_the_proof_follows_short_processes(tmp_path: Path) -> None:
    """Baselines finish a whole item; counting with them would starve the search."""
    search = search_for(tmp_path, Surface(load_s=1e-6), TRAINING)
    stages.measure_baseline(search)
    whole_s = search.expected_s()
    search.runner.taken = [
        replace(taken, result=replace(taken.result, wall_s=9 * whole_s))
        for taken in search.runner.taken
    ]
    assert search.expected_s() == 9 * whole_s, "nothing shorter is known yet"
    stages.tune_free_and_training(search)
    assert search.expected_s() < 2 * whole_s
    assert reserve_s(search) == pytest.approx(cost_s(search, 2, 2.0))


def test_the_winner_finishes_one_item_and_not_twice(tmp_path: Path) -> None:
    search = sampler_search(tmp_path, "5%")
    stages.measure_baseline(search)
    assert search.iterative
    candidate = search.with_value(search.tunable("batch_size")[0], 8)
    assert isinstance(candidate, Candidate)
    for wanted in (1, 0):
        before = len(search.runner.taken)
        confirm(search, candidate, arms_of(candidate), expected_ratio=2.0)
        whole = [taken for taken in search.runner.taken[before:] if taken.whole]
        assert len(whole) == wanted


def test_the_free_part_is_given_up_before_the_proof_of_the_winner(tmp_path: Path) -> None:
    search = search_for(
        tmp_path, Surface(load_s=1e-6), TRAINING, workload={"numeric-tolerance": "2%"}
    )
    assert "precision" in tuned(search)
    winner = search.best_candidate
    assert list(affordable_arms(search, winner, 2.0)) == ["before", "free", "after"]
    two, three = cost_s(search, 2, 2.0), cost_s(search, 3, 2.0)
    search.runner.budget_s = search.runner.spent_s + (two + three) / 2
    assert list(affordable_arms(search, winner, 2.0)) == ["before", "after"]
    assert "alone" in search.skipped[-1]
    search.runner.budget_s = search.runner.spent_s + two / 2
    assert affordable_arms(search, winner, 2.0) == {}
    assert "larger --budget" in search.skipped[-1]


def test_the_proof_interleaves_and_flips_the_order(tmp_path: Path) -> None:
    surface = Surface(load_s=1e-6)
    search = search_for(tmp_path, surface, TRAINING)
    tuned(search)
    surface.seen.clear()
    winner = search.best_candidate
    proof = confirm(search, winner, arms_of(winner), expected_ratio=2.0)
    batches = [values["batch_size"] for _, values in surface.seen]
    assert len(batches) == 12
    assert batches[0:4] == [4, batches[1], batches[1], 4]
    assert proven(proof.ratio("before", "after"), 0.03)


def test_a_gain_inside_the_noise_is_not_proven() -> None:
    proof = Confirmation(
        arms={}, rates={"before": [1, 1.1, 0.9, 1, 1.05, 0.95], "after": [1.05, 1, 1, 1, 1, 1.1]}
    )
    assert not proven(proof.ratio("before", "after"), 0.03)


FREE = Change(document="d", path="batch_size", kind="batch_size", knob_class="free", old=1, new=8)
TRADED = Change(
    document="d", path="precision", kind="precision", knob_class="numeric", old="fp32", new="bf16"
)


@pytest.mark.parametrize(
    ("free", "after", "written"),
    [
        (2.0, 4.0, (FREE, TRADED)),
        (2.0, 2.02, (FREE,)),
        (1.0, 2.0, (FREE, TRADED)),
        (1.0, 1.0, ()),
        (None, 2.0, (FREE, TRADED)),
    ],
)
def test_what_trades_results_is_written_only_for_a_gain_of_its_own(
    free: float | None, after: float, written: tuple[Change, ...]
) -> None:
    arms = arms_of(Candidate(changes=(FREE, TRADED)))
    rates = {"before": [1.0] * 6, "after": [after] * 6}
    if free is None:
        del arms["free"]
    else:
        rates["free"] = [free] * 6
    assert proven_candidate(Confirmation(arms=arms, rates=rates), 0.03).changes == written


def test_a_budget_that_ends_amid_the_proof_ends_it_without_one(tmp_path: Path) -> None:
    """Processes may slow down once the rounds are planned: said so, and nothing is written."""
    search = search_for(tmp_path, Surface(load_s=1e-6), TRAINING)
    tuned(search)
    winner = search.best_candidate
    search.runner.budget_s = search.runner.spent_s
    proof = confirm(search, winner, arms_of(winner), expected_ratio=2.0)
    assert proven_candidate(proof, 0.03) == Candidate()
    assert search.cut_short
    assert any("rest of the confirmation" in line for line in search.skipped)
