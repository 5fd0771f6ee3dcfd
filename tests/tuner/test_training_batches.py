"""A batch that changes a training is never written, whoever steps; in doubt neither."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.model import Candidate, Effects, Failure, Run, Trial, UpdateWork, WorkFacts
from advisor.patches import proven_advice
from advisor.tuner.effects import alters_training
from tests.runs import a_change, a_run
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import formula_search, on_formula

BATCH = "batch_size: 4\nnum_workers: 0\nlr: 0.1\n"
ACCUMULATED = "batch_size: 4\nnum_workers: 0\naccumulation_steps: 8\n"


@pytest.mark.parametrize(
    ("kind", "sign"),
    [("optimizer step", "optimizer"), ("training step", "backward"), ("root forward", "backward")],
)
def test_a_batch_of_a_training_is_advised_with_its_reason(tmp_path, kind, sign) -> None:
    """Faster in every run, proven in rounds of its own, and left to the user."""
    engine = on_formula(load_s=1e-6, step_kind=kind, observed={"trains": sign})
    search = formula_search(tmp_path, engine, BATCH)
    assert search.values == {}
    decision = search.decisions["batch_size"]
    assert decision.outcome == "advised"
    assert "was faster in the search" in decision.reason
    assert ("may train" in decision.reason) is (kind == "root forward")
    assert search.state.suggestions[0].outcome is not None
    assert [each.title for each in proven_advice(search.state, search.executor.program)]


def test_a_batch_whose_pairs_prove_nothing_is_not_called_faster(tmp_path) -> None:
    """One lucky run had proposed it; what its pairs said is what the knob is told with."""
    engine = Lucky(Formula(load_s=1e-6, launch_s=1e-6, process_s=1.0, step_kind="optimizer step"))
    search = formula_search(tmp_path, engine, BATCH)
    assert any(each.outcome is not None for each in search.state.suggestions)
    decision = search.decisions["batch_size"]
    assert decision.outcome == "kept"
    assert "proved no gain" in decision.reason


class Lucky(RecordedEngine):
    """The first run of each larger batch is half as fast again as all later ones."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        met = [each.trial.candidate.key for each in self.asked]
        if isinstance(result, Run) and trial.candidate.changes and met.count(met[-1]) == 1:
            return replace(result, units_per_s=1.5 * result.units_per_s)
        return result


@pytest.mark.parametrize("followed", [True, False])
def test_an_accumulation_makes_up_for_it_where_it_is_followed(tmp_path, *, followed) -> None:
    """A batch that moves alone, because the program accumulates as before, is not free."""
    engine = on_formula(
        load_s=1e-6,
        step_kind="training step",
        observed={"trains": "backward"},
        ignored=frozenset() if followed else frozenset({"accumulation_steps"}),
    )
    search = formula_search(tmp_path, engine, ACCUMULATED)
    assert ("batch_size" in search.values) is followed


@pytest.mark.parametrize(("phase", "outcome"), [("any", "advised"), ("test", "changed")])
def test_a_program_of_which_nothing_is_seen_may_train(tmp_path, phase, outcome) -> None:
    """Its units were counted in its output; that it does not train is for the user to say."""
    engine = on_formula(load_s=1e-6, observed={"input_shapes": ()})
    search = formula_search(tmp_path, engine, "batch_size: 4\n", workload={"phase": phase})
    decision = search.decisions["batch_size"]
    assert decision.outcome == outcome
    assert ("may train" in decision.reason) is (phase == "any")


def test_no_batch_is_tried_that_the_data_cannot_fill(tmp_path) -> None:
    """And that this bounded the search is said."""
    engine = on_formula(load_s=1e-6, step_kind="root forward", observed={"data_items": 100})
    search = formula_search(tmp_path, engine, BATCH)
    sizes = [
        change.new
        for asked in engine.asked
        for change in asked.trial.candidate.changes
        if change.kind == "batch_size"
    ]
    assert max(sizes) == 64
    assert "the dataset has 100 items" in search.decisions["batch_size"].reason


@pytest.mark.parametrize("spelled", ['"4"', "4.0"])
def test_a_count_is_tuned_in_its_own_spelling(tmp_path, spelled) -> None:
    """Text stays text, and a fraction keeps its point."""
    engine = on_formula(load_s=1e-6, step_kind="loader batch")
    search = formula_search(
        tmp_path, engine, f"batch_size: {spelled}\n", workload={"phase": "test"}
    )
    new = search.values["batch_size"]
    assert new > 4
    document = search.context.sources[0].document
    written = document.with_values(search.winner.values_in(document.name)).decode()
    assert written == f"batch_size: {spelled.replace('4', str(new))}\n"


def test_workers_written_as_text_are_tuned_as_text(tmp_path) -> None:
    engine = on_formula(step_kind="loader batch")
    text = 'batch_size: 4\nnum_workers: "0"\n'
    search = formula_search(tmp_path, engine, text, workload={"phase": "test"})
    document = search.context.sources[0].document
    written = document.with_values(search.winner.values_in(document.name)).decode()
    assert re.search(r'^num_workers: "[1-9]\d*"$', written, re.MULTILINE), written


def test_an_accumulation_of_another_config_makes_up_for_a_batch(tmp_path) -> None:
    """Many trainers keep the batch in `data.yaml` and the accumulation in `train.yaml`."""
    engine = on_formula(load_s=1e-6, step_kind="training step", observed={"trains": "optimizer"})
    search = formula_search(
        tmp_path,
        engine,
        "accumulation_steps: 8\n",
        beside=(("data.yaml", "batch_size: 4\n"),),
    )
    moved = {Path(each.document).name: each.new for each in search.winner.changes}
    assert set(moved) == {"train.yaml", "data.yaml"}
    assert moved["train.yaml"] * moved["data.yaml"] == 32


@pytest.mark.parametrize("spelled", ['"4"', "4.0"])
def test_a_count_in_its_own_spelling_is_suggested_with_its_growth(tmp_path, spelled) -> None:
    engine = on_formula(load_s=1e-6, step_kind="optimizer step", observed={"data_items": 64})
    search = formula_search(tmp_path, engine, f"batch_size: {spelled}\n")
    decision = search.decisions["batch_size"]
    assert decision.outcome == "advised"
    assert " times the samples" in decision.reason


def test_an_accumulation_on_the_command_line_makes_up_for_a_batch_of_the_config(tmp_path) -> None:
    """The product is kept wherever its factors stand."""
    engine = on_formula(
        load_s=1e-6,
        step_kind="training step",
        observed={"trains": "optimizer"},
        names={"accumulation_steps": "--accumulation-steps"},
        coded={"--accumulation-steps": 8},
    )
    words = ("--accumulation-steps", "8")
    search = formula_search(tmp_path, engine, "batch_size: 4\n", options=words)
    values = {change.kind: change.new for change in search.winner.changes}
    assert values["batch_size"] * values["grad_accum"] == 32


NEUTRAL = (
    ("batch_size: 4\naccumulation_steps: 1\n", "batch_size"),
    ("global_batch_size: 4\nbatch_size: 4\naccumulation_steps: 1\n", "batch_size"),
    ("global_batch_size: 4\nmicro_batch_size: 4\n", "micro_batch_size"),
    ("train_batch_size: 4\naccumulation_steps: 1\nzero_optimization: {stage: 2}\n",
     "train_batch_size"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "batch"), NEUTRAL)
def test_a_key_at_its_neutral_value_fixes_no_other(tmp_path, text, batch) -> None:
    """With an accumulation of one batch a larger one is tried and advised, as without that key."""
    engine = on_formula(
        load_s=1e-6, step_kind="optimizer step", observed={"trains": "optimizer"},
        names={"batch_size": batch},
    )  # fmt: skip
    search = formula_search(tmp_path, engine, text, workload={"phase": "train"})
    assert search.values == {}
    assert search.decisions[batch].outcome == "advised"


COUNTED = """\
batch_size: 4
max_steps: 8000
optim: {warmup_steps: 500, lr: 0.1}
eval_every: 100
epochs: 30
num_inference_steps: 50
save_every_seconds: 600
"""


def test_a_batch_left_to_the_user_names_what_counts_batches_with_its_line(tmp_path) -> None:
    """And the value for as many samples; what counts epochs or seconds stays."""
    engine = on_formula(load_s=1e-6, step_kind="optimizer step", observed={"trains": "optimizer"})
    search = formula_search(tmp_path, engine, COUNTED)
    decision = search.decisions["batch_size"]
    assert decision.outcome == "advised"
    (suggested,) = search.state.suggestions
    times = suggested.variant.candidate.changes[0].new / 4
    moved = decision.reason.partition("these have to move along: ")[2].split(", `")
    assert [each.strip("`").partition("`")[0] for each in moved] == [
        "max_steps", "optim.warmup_steps", "eval_every",
    ]  # fmt: skip
    assert f"line 2) 8000 to {round(8000 / times)}" in decision.reason
    assert f"line 3) 500 to {round(500 / times)}" in decision.reason


class Following(RecordedEngine):
    """A learning rate that follows the batch."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        if isinstance(result, Failure):
            return result
        rate = 0.1 * (result.effects.batch or 1.0)
        updates = UpdateWork(rates=(rate, rate), schedule=(0, 1))
        return replace(result, work=WorkFacts(updates=updates, update_samples=32.0))


def test_a_refused_batch_names_what_else_it_moves(tmp_path) -> None:
    """The learning rate with its values, and the settings that may count batches."""
    engine = Following(
        Formula(load_s=1e-6, step_kind="optimizer step", observed={"trains": "optimizer"})
    )
    text = "batch_size: 4\naccumulation_steps: 8\nwarmup_steps: 40\n"
    search = formula_search(tmp_path, engine, text)
    assert search.values == {}
    reason = search.decisions["batch_size"].reason
    assert "The learning rate of update 1 is" in reason
    assert re.search(r"`warmup_steps` \(\S+, line 3\) 40 to [0-9]+\b", reason), reason


@pytest.mark.parametrize(
    ("seen", "alters"), [(1.0, False), (2.0, True), (4.0, True), (8.0, True), (None, False)]
)
def test_an_accumulation_is_what_was_seen_of_it(seen, alters) -> None:
    """A third value is neither the old nor the new one; the config's own numbers prove nothing."""

    def run(batch: float, accumulation: float | None) -> Run:
        effects = Effects(batch=batch, accumulation=accumulation, trains="optimizer")
        return a_run(step_kind="optimizer step", effects=effects)

    before, after = run(4.0, 8.0), run(32.0, seen)
    moved = a_change(old=4, new=32), a_change("accumulation", kind="grad_accum", old=8, new=1)
    state: Any = SimpleNamespace(trains=True, original=before)
    assert alters_training(state, Candidate(changes=moved), after) is alters
