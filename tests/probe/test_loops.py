"""Units/s of every shape of loop agree with the program's own account, in the same window."""

import math
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from advisor.analysis import progress, trend
from advisor.model import BEFORE_TRAINING, TRAINING_STEPS, MeasurePlan, Run
from tests.probe.program import PLAN, PROGRAMS, forked, in_a_file, noted_steps, python, run
from tests.support.processes import free_port

WITHIN = 0.03


def close(value: float, truth: float) -> bool:
    return value == pytest.approx(truth, rel=WITHIN)


def test_a_training_is_counted_by_updates_and_their_batches(tmp_path) -> None:
    """A step is an optimizer step; its units are the loader batch's items."""
    outcome = python(tmp_path, "ok_train.py")
    reading = outcome.measured
    assert outcome.exit_code == 0
    assert [record.state for record in outcome.records] == ["stopped"]
    assert close(reading.units_per_s, outcome.true_rate())
    assert reading.step_kind == "optimizer step"
    assert reading.effects.batch == 16
    assert reading.effects.workers == 0
    assert reading.effects.accumulation == 1
    assert "ok_train.py:" in reading.effects.loader_site
    assert dict(reading.effects.arguments)["batch"] == 16
    assert "trained" not in outcome.stdout
    assert reading.losses


def test_clocks_that_the_program_patches_move_no_rate(tmp_path) -> None:
    """Frozen and scaled clocks are usual in tests; parts of the probe are imported after them."""
    outcome = python(tmp_path, "own_clocks.py")
    reading = outcome.measured
    assert close(reading.units_per_s, outcome.true_rate())
    assert reading.effects.batch == 8


@pytest.mark.parametrize(("context", "workers"), [("fork", 2), ("forkserver", 1)])
def test_worker_processes_are_counted_and_are_no_ranks(tmp_path, context, workers) -> None:
    """Worker processes are counted, and are no ranks, however they were started."""
    options = ("--workers", str(workers), "--context", context, "--items", "1000000")
    outcome = python(tmp_path, "ok_train.py", *options)
    reading = outcome.measured
    assert close(reading.units_per_s, outcome.true_rate())
    assert reading.effects.workers == workers
    assert reading.effects.prefetch_factor == 2
    assert reading.ranks == 1


def test_a_pass_that_workers_loaded_ahead_is_no_faster_than_they_load(tmp_path) -> None:
    """Its second step waits for nothing, and the first one for nearly all of both batches."""
    reading = python(tmp_path, "short_pass.py").measured
    assert reading.units_per_s <= 2 / 0.004
    assert any("whole run" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("how", "does"),
    [
        ("thread", "train"),
        ("thread", "rate"),
        ("process", "train"),
        ("executor", "rate"),
        ("asyncio", "rate"),
        ("pool", "train"),
        ("dataset", "rate"),
    ],
)
def test_a_pass_that_its_own_threads_loaded_ahead_is_no_faster_than_they_load(
    tmp_path, how, does
) -> None:
    """They began before the first step, and ten batches were ready when it came."""
    reading = python(tmp_path, "own_queue.py", how, does, "10", "0.05", "0.6").measured
    assert reading.units_per_s <= 32 / 0.05
    assert any("whole run" in note for note in reading.notes)


def test_batches_that_own_threads_had_ready_are_warm_up_of_a_longer_run(tmp_path) -> None:
    """Forty of them in a moment, and then one each 30 ms, in windows of a quarter of a second."""
    reading = python(tmp_path, "own_queue.py", "thread", "train", "200", "0.03", "1.2").measured
    assert reading.units_per_s <= 1.1 * 32 / 0.03


def test_inference_over_a_loader(tmp_path) -> None:
    """A step is a loader batch; items are found in a dict inside a dataclass."""
    outcome = python(tmp_path, "ok_infer.py", "6", "1000")
    reading = outcome.measured
    assert close(reading.units_per_s, outcome.true_rate())
    assert reading.step_kind == "loader batch"
    assert reading.effects.batch == 6
    assert reading.effects.input_shapes == ("3x16x16",)


@pytest.mark.parametrize(
    ("command", "rounds", "batch"),
    [
        (("ok_sampler.py", "60", "3"), 60, 3),
        (("ok_pipeline.py", "40"), 40, 1),
        (("ok_pipeline.py", "40", "bare"), 40, 1),
    ],
)
def test_items_of_an_iterative_sampler_are_told_apart(tmp_path, command, rounds, batch) -> None:
    """Items are loader batches, one outer forward, or a timestep that jumps back."""
    outcome = python(tmp_path, *command)
    reading = outcome.measured
    assert reading.step_kind == "root forward"
    assert reading.effects.forwards_per_unit == rounds
    assert reading.effects.batch == batch
    assert close(reading.units_per_s, outcome.true_rate())


def test_whole_batches_are_waited_for(tmp_path) -> None:
    """The process is not stopped before the batches asked for were finished."""
    plan = MeasurePlan(measure_s=0.3, min_steps=10, forwards_per_unit=200.0, whole_batches=2)
    reading = python(tmp_path, "ok_sampler.py", "200", "2", plan=plan).measured
    assert reading.whole_units >= 4
    assert reading.effects.forwards_per_unit == 200


@pytest.mark.parametrize("batches", [15, 2000])
def test_validation_is_kept_apart(tmp_path, batches) -> None:
    """Its batches are not counted, and its time is none of the training's."""
    plan = MeasurePlan(measure_s=0.6, min_steps=10)  # some nine of the short ones, on any machine
    outcome = python(tmp_path, "ok_loaders.py", str(batches), plan=plan)
    reading = outcome.measured
    noted = noted_steps(outcome.truth_file)  # a validation ends with no units
    inside = [each for each in noted if reading.window_start < each[0] < reading.window_end]
    training = [later - each for (each, _), (later, units) in pairwise(inside) if units]
    assert close(reading.units_per_s, 24 * len(training) / sum(training))
    assert reading.effects.batch == 24
    assert any("of validation in between" in note for note in reading.notes) == (batches == 15)


@pytest.mark.parametrize("batches", [15, 100])
def test_validations_are_measured_where_they_are_asked_for(tmp_path, batches) -> None:
    """The training between them is none of their time."""
    plan = MeasurePlan(measure_s=0.6, min_steps=10, validation=True)
    reading = python(tmp_path, "ok_loaders.py", str(batches), plan=plan).measured
    assert reading.step_kind == "loader batch"
    assert reading.effects.batch == 10
    assert reading.effects.trains == "optimizer"
    assert reading.units_per_s <= 10 / 0.002, "a batch of it sleeps so long"
    assert reading.shares.compute + reading.shares.data_wait + reading.shares.other > 0.9


@pytest.mark.slow
def test_two_ranks_of_which_one_is_slow(tmp_path) -> None:
    """They stop at the same step and their rates, which are one where gradients are reduced, add
    up. The matrix has those of torchrun and of spawn."""
    env = {"PORT": str(free_port()), "UNEVEN": "1"}
    outcome = python(tmp_path, "ok_ranks.py", "fork", env=env)
    reading = outcome.measured
    assert outcome.exit_code == 0, outcome.stderr
    assert reading.ranks == 2
    assert len(reading.rank_units_per_s) == 2
    both = outcome.true_rate("0") + outcome.true_rate("1")
    assert reading.units_per_s == pytest.approx(both, rel=0.2)  # the sum, and no mean
    assert len({record.steps for record in outcome.records if record.state == "stopped"}) == 1
    slow, fast = sorted(reading.rank_units_per_s)
    assert close(slow, fast)
    assert reading.effects.workers == 1


def test_a_shell_script_that_overwrites_pythonpath(tmp_path) -> None:
    """The `python` found first on PATH brings the probe back."""
    outcome = run(tmp_path, "bash", str(PROGRAMS / "ok_shell.sh"))
    assert len(outcome.records) == 2
    assert close(outcome.measured.units_per_s, outcome.true_rate())


def test_the_loader_alone_at_each_worker_count(tmp_path) -> None:
    """After the window. A batch of the loop sleeps as long as its loader takes for dozens."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10, ceilings_workers=(0, 1), ceilings_s=0.3)
    outcome = python(tmp_path, "ok_train.py", "--workers", "1", "--sleep", "0.1", plan=plan)
    reading = outcome.measured
    assert outcome.exit_code == 0
    assert [ceiling.workers for ceiling in reading.ceilings] == [0, 1]
    assert all(entry.units_per_s > reading.units_per_s for entry in reading.ceilings)


BASELINE = MeasurePlan(
    measure_s=0.4, min_steps=8, whole_batches=1, ceilings_workers=(0, 1), ceilings_s=0.2
)


@pytest.mark.parametrize("kind", ["gpt", "bigram"])
def test_samples_of_a_language_model(tmp_path, kind) -> None:
    """6 rows of 10 tokens; asked for as a baseline is, it ends by itself."""
    outcome = python(tmp_path, "own_language.py", kind, plan=BASELINE)
    reading = outcome.measured
    assert [record.state for record in outcome.records] == ["stopped"]
    assert reading.effects.batch == 6
    assert reading.unit == "sample"
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)
    assert reading.tokens_per_s == pytest.approx(10 * reading.units_per_s)


def test_a_validation_first_is_not_the_workload(tmp_path) -> None:
    """With an optimizer built, forwards without gradients are waited out."""
    outcome = python(tmp_path, "own_language.py", "gpt", "4", "8", "torch", plan=BASELINE)
    reading = outcome.measured
    assert reading.step_kind == "optimizer step"
    assert reading.effects.batch == 4
    assert BEFORE_TRAINING not in reading.notes


def test_a_validation_longer_than_our_patience_is_named(tmp_path, monkeypatch) -> None:
    """It was measured in place of the training, and predicted as inference."""
    monkeypatch.setattr(progress, "ROLLOUT_PATIENCE_S", 0.0)
    words = ("gpt", "4", "8", "torch", "1000000")
    outcome = python(tmp_path, "own_language.py", *words, plan=PLAN)
    assert outcome.measured.step_kind not in TRAINING_STEPS
    assert BEFORE_TRAINING in outcome.measured.notes


def test_a_loader_that_another_thread_reads_is_not_waited_for(tmp_path) -> None:
    """Its `__next__` takes nearly all the time of that thread, and none of the work's.

    The thread runs by fits and starts on a busy machine, and none of its batches is a skipped one.
    """
    outcome = python(tmp_path, "ok_background.py", plan=replace(PLAN, measure_s=1.0))
    reading = outcome.measured
    assert reading.effects.batch == 5
    assert reading.wait_share is None
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=WITHIN)


def test_items_of_a_quick_sampler_are_told_apart_while_steps_are_only_counted(tmp_path) -> None:
    """Its pauses between items would count twice where no item's begin is seen."""
    outcome = python(tmp_path, "quick_sampler.py", plan=MeasurePlan(measure_s=1.0, min_steps=10))
    reading = outcome.measured
    assert reading.effects.forwards_per_unit == 12
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "alone"),
    [("workers", [0]), pytest.param("main", [], marks=pytest.mark.nightly)],
)
def test_a_loader_that_waits_for_ever_ends_the_parts_and_not_the_rate(tmp_path, how, alone) -> None:
    """Its workers wait for a lock, or its items for the loop that we hold up: waits are bounded."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10, ceilings_workers=(0, 1, 2), ceilings_s=0.2)
    outcome = python(tmp_path, "waits_alone.py", how, plan=plan, timeout_s=100.0)
    assert outcome.exit_code == 0
    assert outcome.measured.units_per_s > 0
    assert [ceiling.workers for ceiling in outcome.measured.ceilings] == alone


FLAT = """
import torch, time
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Sequences(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return torch.randn(3 + index % 7, 16)

net = {net}
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for x in DataLoader(Sequences(), batch_size=8, collate_fn={collate}):
    net(x).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
"""
WITH_PLACE = "nn.TransformerEncoderLayer(16, 2, batch_first=True)"


@pytest.mark.parametrize(
    ("net", "collate", "unit", "batch"),
    [
        ("nn.Linear(16, 1)", "torch.cat", "step", None),
        ("nn.Linear(16, 1)", "lambda items: nn.utils.rnn.pad_sequence(items)", "sample", 8),
        (WITH_PLACE, "lambda items: torch.cat(items)[None]", "sample", 1),
    ],
)
def test_a_batch_that_neither_the_loader_nor_a_layer_tells_is_a_step(
    tmp_path, net, collate, unit, batch
) -> None:
    """Rows of sequences in one are no samples; where the two disagree a layer is believed."""
    code = FLAT.format(net=net, collate=collate)
    reading = in_a_file(tmp_path, code).measured
    assert reading.unit == unit
    assert reading.effects.batch == batch


SORTED = """
import time, torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
cost_s = [0.02 * 2.718281828 ** (-index / 400) + 0.0004 for index in range(20_000)]

class Longest(Dataset):
    def __len__(self):
        return len(cost_s)
    def __getitem__(self, index):
        return torch.full((16,), float(index)), index

net = torch.nn.Linear(16, 1).eval()
with torch.no_grad():
    for x, index in DataLoader(Longest(), batch_size={batch}):
        time.sleep(sum(cost_s[each] for each in index.tolist()))
        net(x)
"""


@pytest.mark.slow
def test_of_data_in_order_of_cost_a_larger_batch_owes_its_gain_to_later_items(tmp_path) -> None:
    """A batch costs what its items cost: whatever it gains is theirs."""
    plan = MeasurePlan(measure_s=2.0, min_steps=20)

    def measured(name: str, batch: int) -> Run:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "longest.py").write_text(SORTED.format(batch=batch))
        words = (sys.executable, str(folder / "longest.py"))
        return run(folder, *words, plan=plan, begin=forked).measured

    originals = [measured("one", 4), measured("again", 4)]
    after = measured("after", 64)
    gain = math.log(after.units_per_s / originals[0].units_per_s)
    assert gain > math.log(1.1)
    assert trend.head_start(originals, after) > gain / 2


def test_what_loader_workers_cost_is_told_beside_their_rate(tmp_path) -> None:
    """Reads of four milliseconds: two workers sleep, and need a part of one CPU."""
    config = tmp_path / "c.json"
    config.write_text('{"lr": 0.1}')
    plan = MeasurePlan(measure_s=0.3, min_steps=8, ceilings_workers=(0, 2), ceilings_s=0.5)
    outcome = python(tmp_path, "whatif_train.py", str(config), plan=plan)
    alone, by_two = outcome.measured.ceilings
    assert alone.workers == 0
    assert alone.worker_gib is None
    assert by_two.workers == 2
    assert by_two.busy_cpus is not None
    assert 0 < by_two.busy_cpus < 2
    assert by_two.worker_gib is not None
    assert 0 < by_two.worker_gib < 2
    assert by_two.shm_gib is not None
    assert by_two.shm_gib <= (by_two.free_shm_gib or 0.0)
