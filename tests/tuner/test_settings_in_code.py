"""Values that stand in the code are searched, proven and told as those of a config are."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.model import (
    Failure,
    Items,
    LoaderWork,
    OverrideOutcome,
    PassItems,
    Run,
    Trial,
    WorkFacts,
)
from advisor.patches import proven_advice
from tests.report.composing import reported
from tests.runs import a_failure
from tests.support.simulator.engine import Noise, RecordedEngine, Values
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.configs import GUARD, TEST

START = {"batch_size": 1, "num_workers": 0}
CODE = "import torch\n\nloader = DataLoader(data, batch_size=1, num_workers=0)\n"
FORMULAS: dict[str, dict[str, float]] = {
    "all three": {"load_s": 0.004, "launch_s": 0.004, "unit_s": 0.0005},
    "launches": {"load_s": 0.001, "launch_s": 0.02, "unit_s": 0.0003},
    "loading": {"load_s": 0.01, "launch_s": 0.002, "unit_s": 0.0002},
}
CALL: dict[str, Any] = {"noise": 0.02, "process_s": 5.0, "observed": {"loader_site": "train.py:3"}}


def repository(folder: Path) -> Path:
    """A repository whose program builds its loader in line 3."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "train.py").write_text(CODE)
    return folder


def advised(search: FormulaSearch) -> dict[str, Any]:
    """Values of the only suggestion, written or not."""
    (suggestion,) = search.state.suggestions
    return {each.path: each.new for each in suggestion.variant.candidate.changes}


@pytest.mark.parametrize("formula", FORMULAS)
def test_values_in_the_code_gain_as_values_in_a_config_do(tmp_path, formula) -> None:
    """One search for both: one stack, one number, and one patch that git takes."""
    work = repository(tmp_path / "code")
    engine = on_formula(**FORMULAS[formula], **CALL, coded=START, seed=1)
    coded = formula_search(work, engine, "lr: 0.1\n", workload=TEST, budget_s=600.0)
    engine = on_formula(**FORMULAS[formula], **CALL, seed=1)
    text = "batch_size: 1\nnum_workers: 0\n"
    config = formula_search(tmp_path / "config", engine, text, workload=TEST, budget_s=600.0)
    true = Formula(**FORMULAS[formula])
    ratio = true.rate(START | advised(coded)) / true.rate(START | config.values)
    assert ratio == pytest.approx(1.0, rel=0.05)
    (advice,) = proven_advice(coded.state, coded.executor.program)
    gain = true.rate(START | advised(coded)) / true.rate(START)
    assert advice.gain.low <= 1.05 * gain
    assert advice.gain.estimate == pytest.approx(gain, rel=0.05)
    subprocess.run(["git", "apply", "-"], input=advice.patch, text=True, cwd=work, check=True)
    for name, value in advised(coded).items():
        assert f"{name}={value}" in (work / "train.py").read_text()
    assert coded.winner.changes == (), "nothing of it is ours to write"


@pytest.mark.parametrize("has_config", [False, True])
def test_a_config_that_may_win_over_a_patched_field_is_told(tmp_path, has_config) -> None:
    """The patch sets `size` in the code; what the program reads from over.json later would win."""
    work = repository(tmp_path)
    (work / "train.py").write_text(CODE.replace("batch_size=1", "batch_size=config.size"))
    (work / "settings.py").write_text("config.size = 1\n")
    if has_config:
        (work / "over.json").write_text('{"size": 1}')
    engine = on_formula(load_s=1e-6, launch_s=0.02, unit_s=3e-4, **CALL, coded=START, seed=1)
    search = formula_search(work, engine, "lr: 0.1\n", workload=TEST, budget_s=600.0)
    (advice,) = proven_advice(search.state, search.executor.program)
    assert f"+config.size = {advised(search)['batch_size']}" in advice.patch.split("\n")
    assert ("`over.json` has `size` too" in advice.detail) is has_config


@pytest.mark.parametrize(
    ("launch_s", "headline"),
    [
        (0.02, "Every value that was tried stands in the program's code: no file is changed."),
        (0.0003, "No value tested was proven faster. Runs tie within "),
    ],
)
def test_a_headline_on_values_in_code_says_nothing_of_writing(tmp_path, launch_s, headline) -> None:
    """`No value that may be written was faster` was said where none could have been written."""
    engine = on_formula(
        load_s=1e-6, launch_s=launch_s, unit_s=0.001, **{**CALL, "noise": 0.2},
        coded={"batch_size": 1}, seed=1,
    )  # fmt: skip
    search = formula_search(repository(tmp_path), engine, "lr: 0.1\n", workload=TEST)
    assert search.state.suggestions
    assert reported(search, tmp_path).reason.startswith(headline)


def test_switches_of_torch_come_on_top_of_the_loader_as_one_patch(tmp_path) -> None:
    """One number for all of it, what each step gained in its one run, and one edit of the file."""
    work = repository(tmp_path)
    (work / "train.py").write_text(f"{CODE}out = model(batch)\n")
    seen = {"device": "cpu", "threads": 8, "model_site": "train.py:4", **CALL["observed"]}
    faster = {"threads=4": 1.5, "autocast=bfloat16": 1.4}
    engine = on_formula(
        load_s=1e-3, unit_s=0.004, coded={"num_workers": 0}, seed=1, process_s=5.0,
        observed=seen, switches=faster, drifts={"autocast=bfloat16": 0.001},
    )  # fmt: skip
    search = formula_search(
        work, engine, "lr: 0.1\n", workload=GUARD, budget_s=900.0, cpus=4, gpu=False
    )
    (advice,) = proven_advice(search.state, search.executor.program)
    batch, workers = (advised(search)[name] for name in ("batch_size", "num_workers"))
    arguments = f"DataLoader arguments: batch_size={batch}, num_workers={workers}"
    assert advice.title == f"{arguments}; threads=4; autocast=bfloat16"
    assert f"Each in one run, on top of those before: {arguments} " in advice.detail
    assert "; threads=4 1.50x; autocast=bfloat16 1.40x." in advice.detail
    subprocess.run(["git", "apply", "-"], input=advice.patch, text=True, cwd=work, check=True)
    code = (work / "train.py").read_text()
    for line in (
        f"batch_size={batch}, num_workers={workers})",
        "torch.set_num_threads(4)",
        "with torch.autocast(",
    ):
        assert line in code


@dataclass(frozen=True, kw_only=True)
class SharedCpus(Formula):
    """Two CPUs: a worker beside two threads is slower, one thread alone too, and both are not."""

    def rate(self, values: Values, switches: Sequence[str] = ()) -> float:
        has_worker, one_thread = bool(values.get("num_workers")), "threads=1" in switches
        factor = {(True, False): 0.5, (False, True): 0.8}
        return super().rate(values) * factor.get((has_worker, one_thread), 1.0)


def test_a_worker_and_one_thread_less_are_tried_together(tmp_path) -> None:
    """Each alone is slower where all CPUs compute, and wait, and compute again."""
    work = repository(tmp_path)
    (work / "train.py").write_text(f"{CODE}out = model(batch)\n")
    seen = {"device": "cpu", "threads": 2, "model_site": "train.py:4", **CALL["observed"]}
    seen |= {"data_items": 1}  # no batch to search
    surface = SharedCpus(
        load_s=3e-4, launch_s=0.0, unit_s=1e-3, coded={"num_workers": 0}, process_s=5.0,
        observed=seen, switches={"threads=1": 1.0}, step_kind="optimizer step",
    )  # fmt: skip
    engine = RecordedEngine(surface, noise=Noise(between=0.02), seed=1)
    search = formula_search(work, engine, "lr: 0.1\n", budget_s=600.0, cpus=2, gpu=False)
    assert {"num_workers": 1, "threads": 1}.items() <= advised(search).items()
    (advice,) = proven_advice(search.state, search.executor.program)
    subprocess.run(["git", "apply", "-"], input=advice.patch, text=True, cwd=work, check=True)
    code = (work / "train.py").read_text()
    assert "num_workers=1" in code
    assert "torch.set_num_threads(1)" in code


def test_a_batch_of_the_config_and_workers_in_the_code_are_one_stack(tmp_path) -> None:
    """What may be written is proven first; on top of it both move, and one patch holds both."""
    work = repository(tmp_path)
    engine = on_formula(**FORMULAS["all three"], **CALL, coded={"num_workers": 0}, seed=2)
    search = formula_search(work, engine, "batch_size: 1\n", workload=TEST, budget_s=600.0)
    assert search.values["batch_size"] > 1
    (advice,) = proven_advice(search.state, search.executor.program)
    written = search.context.sources[0].document
    (work / "train.yaml").write_bytes(written.with_values(search.winner.values_in(written.name)))
    subprocess.run(["git", "apply", "-"], input=advice.patch, text=True, cwd=work, check=True)
    assert f"num_workers={advised(search)['num_workers']}" in (work / "train.py").read_text()


def test_an_accumulation_of_the_config_makes_up_for_a_batch_in_the_code(tmp_path) -> None:
    """Updates stay as they are: one patch for both, and no word on the learning rate."""
    work = repository(tmp_path)
    engine = on_formula(
        load_s=1e-6, launch_s=0.02, process_s=5.0, coded={"batch_size": 1},
        observed={"loader_site": "train.py:3", "trains": "optimizer"}, step_kind="optimizer step",
    )  # fmt: skip
    search = formula_search(work, engine, "accumulation_steps: 32\n", budget_s=600.0)
    moved = advised(search)
    assert moved["batch_size"] * moved["accumulation_steps"] == 32
    (advice,) = proven_advice(search.state, search.executor.program)
    assert "learning rate" not in advice.detail
    subprocess.run(["git", "apply", "-"], input=advice.patch, text=True, cwd=work, check=True)
    assert f"steps: {moved['accumulation_steps']}\n" in (work / "train.yaml").read_text()
    assert f"batch_size={moved['batch_size']}" in (work / "train.py").read_text()


def test_a_batch_in_the_code_of_a_training_is_told_with_its_learning_rate(tmp_path) -> None:
    engine = on_formula(
        load_s=1e-6, launch_s=0.02, coded={"batch_size": 1}, step_kind="optimizer step",
        observed={"loader_site": "train.py:3", "trains": "optimizer", "data_items": 256},
    )  # fmt: skip
    search = formula_search(tmp_path, engine, "lr: 0.1\n")
    assert advised(search)["batch_size"] <= 64, "a pass keeps a few steps"
    assert "The learning rate" in search.decisions_in_code["batch_size"].reason


def test_what_a_patch_cannot_hold_is_told_beside_it(tmp_path) -> None:
    """No patch holds the command: half of what was proven is another program, and nobody says so
    but the advice."""
    work = repository(tmp_path)
    engine = on_formula(
        **FORMULAS["all three"], **CALL, coded={"--batch-size": 1, "num_workers": 0},
        names={"batch_size": "--batch-size"}, step_kind="optimizer step",
    )  # fmt: skip
    search = formula_search(work, engine, "lr: 0.1\n", options=("--batch-size", "1"))
    assert {"--batch-size", "num_workers"} <= advised(search).keys()
    (advice,) = proven_advice(search.state, search.executor.program)
    workers = advised(search)["num_workers"]
    assert f"num_workers={workers})" in advice.patch
    batch = advised(search)["--batch-size"]
    assert f"Not in the patch, and measured with it: --batch-size {batch}." in advice.detail


class MakesItsBatches(RecordedEngine):
    """The probe cannot set the batch: the program has a sampler of its own."""

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        assert isinstance(run, Run)
        why = "the program makes its batches itself"
        outcomes = tuple(
            OverrideOutcome(knob=each.knob, applied=False, why=why)
            if each.knob == "batch_size"
            else each
            for each in run.overrides
        )
        asked = any(each.knob == "batch_size" for each in trial.plan.overrides)
        effects = replace(run.effects, batch=1.0, batch_asked=1) if asked else run.effects
        return replace(run, overrides=outcomes, effects=effects)


def test_what_the_probe_could_not_apply_is_ignored_and_the_rest_is_tuned(tmp_path) -> None:
    """An argument that is out of reach costs one process, and keeps no other from its search."""
    engine = on_formula(MakesItsBatches, **FORMULAS["loading"], **CALL, coded=START)
    search = formula_search(tmp_path, engine, "lr: 0.1\n", workload=TEST)
    decision = search.decisions_in_code["batch_size"]
    assert decision.outcome == "ignored"
    assert "the program makes its batches itself" in decision.reason
    assert advised(search)["num_workers"] > 0
    assert "batch_size" not in advised(search)


class Unsharded(RecordedEngine):
    """A stream that each worker yields whole: more rows for the same items."""

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        assert isinstance(run, Run)
        workers = run.effects.workers or 0
        rows = tuple(range(32)) * max(1, workers)
        came = Items(count=len(rows), first=rows[:32], distinct=(2, 4, 8, 16, 32))
        came = replace(came, first=(0,) * 32, distinct=(1, 1, 1, 1, 1)) if workers > 1 else came
        loader = LoaderWork(iterable=True, passes=(PassItems(came=came, whole=True),))
        return replace(run, work=WorkFacts(loader=loader))


def test_workers_in_the_code_that_do_other_work_are_not_suggested(tmp_path) -> None:
    """The same comparison of two trials' work as for a config's workers, with its reason."""
    engine = on_formula(Unsharded, **FORMULAS["loading"], **CALL, coded=START)
    search = formula_search(tmp_path, engine, "lr: 0.1\n", workload=TEST)
    for suggestion in search.state.suggestions:
        values = {each.path: each.new for each in suggestion.variant.candidate.changes}
        assert values.get("num_workers", 0) < 2
    assert any("worker" in each.clause for each in search.state.left_out)
    assert {each.cause for each in search.state.left_out} == {"other-work"}


class FailsWithPrefetching(RecordedEngine):
    """Prefetching doubles the rate once; each later process with it fails."""

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        met = sum(each.trial.candidate.key == trial.candidate.key for each in self.asked)
        if not isinstance(run, Run) or not overridden(trial).get("prefetch_factor"):
            return run
        return a_failure("crash-step") if met > 1 else replace(run, units_per_s=2 * run.units_per_s)


def test_a_stack_whose_last_step_does_not_hold_is_proven_without_it(tmp_path) -> None:
    """It is peeled from its end: what its comparison refutes costs the rest nothing."""
    engine = on_formula(FailsWithPrefetching, **FORMULAS["loading"], **CALL, coded=START)
    search = formula_search(tmp_path, engine, "lr: 0.1\n", workload=TEST)
    (advice,) = proven_advice(search.state, search.executor.program)
    assert "num_workers" in advice.title
    assert "prefetch_factor" not in advice.title
    assert search.decisions_in_code["num_workers"].outcome == "advised"
    assert search.decisions_in_code["prefetch_factor"].outcome == "kept"


def test_what_a_config_holds_is_no_setting_of_the_code(tmp_path) -> None:
    """There is one place for each value: the one that may be written."""
    engine = on_formula(**FORMULAS["loading"], **CALL)
    search = formula_search(tmp_path, engine, "batch_size: 1\nnum_workers: 0\n", workload=TEST)
    assert not {"batch_size", "num_workers"} & search.decisions_in_code.keys()
    assert not {"batch_size", "num_workers"} & {
        k for e in engine.asked for k in overridden(e.trial)
    }


def overridden(trial: Trial) -> Values:
    return {each.knob: each.value for each in trial.plan.overrides}


def test_what_a_stack_is_judged_by_takes_nothing_from_what_is_proven(tmp_path) -> None:
    """Its larger batch moves the declared quality: the stack is refused, and the config stays."""
    measure = {"rmse": {"pattern": "rmse: ([0-9.]+)", "tolerance": "5%"}}
    engine = on_formula(
        **FORMULAS["loading"], process_s=5.0, coded={"batch_size": 1},
        observed={"loader_site": "train.py:3", "trains": "optimizer", "device": "cpu"},
        step_kind="optimizer step", switches={"autocast=bfloat16": 1.5},
        quality=lambda _: 0.5, quality_name="rmse", quality_noise=1e-4, sampler=False,
    )  # fmt: skip
    search = formula_search(
        tmp_path, engine, "num_workers: 0\n", workload={"quality": measure}, budget_s=900.0,
        gpu=False,
    )  # fmt: skip
    assert search.values["num_workers"] > 0
    assert search.state.quality.best is None, "nothing of the config was judged by it"
