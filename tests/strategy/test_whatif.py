"""What no config holds: which what-ifs are tried, what becomes advice, and what never does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import MeasurePlan
from advisor.tuning import loader, stages, whatif
from benchmarks.surfaces import Surface
from tests.probe import program
from tests.tuning.test_search import guard_of, search_for

if TYPE_CHECKING:
    from advisor.tuning.search import Search

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
CODED = {"batch_size": 4, "num_workers": 0}
CONFIG = "lr: 0.1\n"
LOADER = "l = DataLoader(\n    data,\n    batch_size=4,\n)\n"
ON_CUDA = {"device": "cuda:0", "cudnn_benchmark": False, "channels_last": False, "tf32": False}
GUARD = {"numeric-tolerance": "2%"}


def advised(
    tmp_path: Path,
    surface: Surface,
    text: str = CONFIG,
    *,
    workload: dict[str, Any] | None = None,
    budget_s: float = 1e9,
) -> Search:
    """A search over `surface` up to its advice."""
    search = search_for(tmp_path, surface, text, workload=workload, budget_s=budget_s)
    stages.measure_baseline(search)
    stages.measure_ceilings(search)
    whatif.advise(search, guard_of(search))
    return search


def tried(surface: Surface) -> list[str]:
    """What-ifs that cost a process, in order, without their site."""
    return [asked.partition("@")[0] for asked in dict.fromkeys(surface.tried) if asked]


def loader_bound(**more: Any) -> Surface:
    """Waits most of the time for a loader that the code builds without workers."""
    observed = {"loader_site": "train.py:1", **more.pop("observed", {})}
    return Surface(coded=CODED, observed=observed, step_kind="optimizer step", **more)


def computing(**more: Any) -> Surface:
    """Training on a GPU that hardly waits for data."""
    observed = {**ON_CUDA, **more.pop("observed", {})}
    return Surface(coded=CODED, load_s=1e-6, observed=observed, step_kind="optimizer step", **more)


# --- formulas -----------------------------------------------------------------------------


def test_workers_that_stand_in_the_code_become_advice_with_a_patch(tmp_path: Path) -> None:
    """Measured in pairs against the best candidate, at the line where the loader is built."""
    (tmp_path / "train.py").write_text(LOADER)
    (advice,) = advised(tmp_path, loader_bound()).advice
    assert advice.title.startswith("DataLoader arguments: num_workers=")
    assert advice.site == "train.py:1 DataLoader(...)"
    assert advice.gain is not None
    assert advice.gain.n >= 6
    assert advice.gain.low == pytest.approx(22 / 6, rel=0.01)
    assert advice.patch is not None
    assert "+    num_workers=" in advice.patch
    assert (tmp_path / "train.py").read_text() == LOADER


def test_a_second_call_takes_its_pairs_from_history(tmp_path: Path) -> None:
    """Pairs of one call never stand in for each other, those of an earlier call do."""
    (tmp_path / "train.py").write_text(LOADER)
    first = advised(tmp_path, loader_bound())
    pairs = [taken for taken in first.runner.taken if taken.purpose == "whatif"]
    assert not any(taken.reused for taken in pairs)
    again = advised(tmp_path, loader_bound())
    assert again.runner.processes == 2, "the baselines"
    assert again.advice == first.advice


def test_a_training_batch_that_nothing_makes_up_for_is_only_advised(tmp_path: Path) -> None:
    """Effective batch is the user's; the patch is the config's, and the file is not touched."""
    text = "batch_size: 4\nnum_workers: 0\nlr: 0.1\n"
    search = search_for(tmp_path, computing(), text)
    stages.measure_baseline(search)
    stages.tune_free_and_training(search)
    assert search.best_candidate.changes == ()
    decision = next(d for d in search.decisions.values() if d.kind == "batch_size")
    assert decision.outcome == "advised"
    whatif.advise(search, guard_of(search))
    advice = next(a for a in search.advice if a.title.startswith("batch_size: 4 to "))
    assert advice.gain is not None
    assert advice.gain.low > 1.03
    assert advice.patch is not None
    assert "-batch_size: 4\n+batch_size: " in advice.patch
    assert (tmp_path / "train.yaml").read_text() == text


def test_a_knob_of_the_config_is_left_to_the_config(tmp_path: Path) -> None:
    surface = loader_bound()
    advised(tmp_path, surface, "num_workers: 0\nprefetch_factor: 2\npersistent_workers: false\n")
    assert tried(surface) == []


def test_a_knob_that_the_code_overrides_is_tried_in_the_code(tmp_path: Path) -> None:
    """The config says workers and the program ignores it: the call is what must change."""
    surface = loader_bound(ignored=frozenset({"num_workers"}))
    search = search_for(tmp_path, surface, "num_workers: 0\n")
    stages.measure_baseline(search)
    stages.measure_ceilings(search)
    loader.tune_loader(search)
    surface.ignored = frozenset()
    whatif.advise(search, guard_of(search))
    assert [decision.outcome for decision in search.decisions.values()] == ["ignored"]
    assert len(search.advice) == 1


def test_a_program_that_hardly_waits_gets_no_loader_trials(tmp_path: Path) -> None:
    surface = Surface(coded=CODED, load_s=1e-6, step_kind="optimizer step")
    assert advised(tmp_path, surface).advice == []
    assert tried(surface) == []


def test_what_is_on_already_is_never_tried(tmp_path: Path) -> None:
    on = {
        "cudnn_benchmark": True,
        "channels_last": True,
        "tf32": True,
        "compiled": True,
        "set_to_none": True,
        "pin_memory": False,
        "dtype": "bfloat16",
    }
    surface = computing(observed=on, switches=dict.fromkeys(on, 2.0))
    advised(tmp_path, surface, workload=GUARD)
    assert tried(surface) == ["loader.pin_memory=1"]


def test_switches_of_the_gpu_are_not_tried_without_one(tmp_path: Path) -> None:
    surface = computing(observed={"device": "cpu", "compiled": False, "pin_memory": True})
    advised(tmp_path, surface)
    assert tried(surface) == []


def test_only_what_is_faster_by_more_than_a_tie_is_advised(tmp_path: Path) -> None:
    """The rest is named once, with what became of it."""
    surface = computing(switches={"cudnn_benchmark": 1.2, "channels_last": 1.01})
    search = advised(tmp_path, surface)
    assert [advice.title for advice in search.advice] == ["cudnn_benchmark"]
    assert any("channels_last (1.01x)" in note for note in search.notes)


@pytest.mark.parametrize(
    ("workload", "drift", "expected"),
    [(None, 0.0, None), (GUARD, 0.001, ["autocast=bfloat16"]), (GUARD, 0.5, [])],
)
def test_rounding_is_only_changed_behind_the_guard(
    workload: dict[str, Any] | None, drift: float, expected: list[str] | None, tmp_path: Path
) -> None:
    """Not tried without a declared tolerance; beyond it not advised, however fast."""
    surface = computing(
        observed={"device": "cpu"},
        switches={"autocast=bfloat16": 1.5},
        drifts={"autocast=bfloat16": drift},
    )
    search = advised(tmp_path, surface, workload=workload)
    assert tried(surface) == ([] if expected is None else ["autocast=bfloat16"])
    assert [advice.title for advice in search.advice] == (expected or [])
    if expected is None:
        assert any("autocast was not tried" in note for note in search.notes)


def test_a_single_run_is_labelled_as_one(tmp_path: Path) -> None:
    """Where the budget has no room for pairs, the ratio is said but is no measured gain."""
    surface = computing(switches={"cudnn_benchmark": 1.4})
    search = search_for(tmp_path, surface, CONFIG, budget_s=9.0)
    stages.measure_baseline(search)
    whatif.advise(search, guard_of(search))
    (advice,) = search.advice
    assert advice.gain is None
    assert "One run did" in advice.detail
    assert "1.40x" in advice.detail


def test_a_spent_budget_is_said(tmp_path: Path) -> None:
    surface = computing(switches={"cudnn_benchmark": 1.4})
    search = search_for(tmp_path, surface, CONFIG, budget_s=1e9)
    stages.measure_baseline(search)
    search.runner.budget_s = 0.0
    whatif.advise(search, guard_of(search))
    assert search.advice == []
    assert any("did not fit" in line for line in search.skipped)


# --- inside the process -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("loader.prefetch_factor=4", "needs workers"),
        ("loader.num_workers=1@elsewhere.py:3", "no DataLoader was built at elsewhere.py:3"),
        ("channels_last", "no 2-d convolution"),
        ("cudnn_benchmark", "runs on cpu"),
        ("non_blocking", "no tensor was copied"),
        ("set_to_none", "never asked to keep zeros"),
    ],
)
def test_what_does_not_apply_is_told_with_the_reason(tmp_path: Path, asked: str, why: str) -> None:
    """The program is measured as it is; nothing of it fails."""
    plan = MeasurePlan(measure_s=0.2, min_steps=5, whatif=asked)
    reading = program.python(tmp_path, "whatif_loop.py", "--linear", plan=plan).measured
    assert reading.whatif is not None
    assert reading.whatif.applied is False
    assert why in (reading.whatif.why or "")


@pytest.mark.parametrize(
    ("asked", "args", "effect", "value"),
    [
        ("loader.num_workers=1,loader.persistent_workers=1", (), "persistent_workers", True),
        ("autocast=bfloat16", ("--infer",), "dtype", "bfloat16"),
        ("set_to_none", ("--keep-zeros",), "set_to_none", True),
        ("channels_last", (), "channels_last", True),
    ],
)
def test_what_applies_is_seen_in_the_effects(
    tmp_path: Path, asked: str, args: tuple[str, ...], effect: str, value: object
) -> None:
    plan = MeasurePlan(measure_s=0.2, min_steps=5, whatif=asked)
    outcome = program.python(tmp_path, "whatif_loop.py", *args, plan=plan)
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.measured.whatif is not None
    assert outcome.measured.whatif.applied
    assert getattr(outcome.measured.effects, effect) == value


def test_compilation_is_kept_out_of_the_window(tmp_path: Path) -> None:
    """The window begins after the calls that compiled, and their cost is told."""
    plan = MeasurePlan(measure_s=0.3, min_steps=5, whatif="compile=eager")
    outcome = program.python(tmp_path, "whatif_loop.py", plan=plan)
    reading, (record,) = outcome.measured, outcome.records
    assert reading.effects.compiled is True
    assert reading.whatif is not None
    assert reading.whatif.cost_s
    assert record.first_step_time is not None
    assert reading.window_start - record.first_step_time > reading.whatif.cost_s


# --- real processes, end to end -----------------------------------------------------------


def optimized(project: Path, *flags: str) -> dict[str, Any]:
    """report.json of a call over `project`."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "advisor", "optimize", "c.json", "--window", "0.4s", *flags),
            *("--", sys.executable, "train.py", "c.json"),
        ],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "GPU_ADVISOR_RUNTIME_DIR": str(project / ".lock"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((project / "report.json").read_text())
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "train.py").write_bytes((PROGRAMS / "whatif_train.py").read_bytes())
    (tmp_path / "c.json").write_text('{"lr": 0.1}\n')
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one CPU: no number of workers is faster"
)
def test_loader_arguments_in_the_code_are_found_measured_and_patched(project: Path) -> None:
    """The patch applies, the patched program really has the workers, and nothing is left to say."""
    code = (project / "train.py").read_text()
    found = optimized(project, "--budget", "6m")
    (advice,) = found["advice"]
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "DataLoader(" in text)
    assert advice["site"] == f"train.py:{line} DataLoader(...)"
    assert advice["gain"]["low"] > 1.03
    assert "num_workers=" in advice["title"]
    assert (project / "train.py").read_text() == code
    patch = project / "report-advice-1.patch"
    assert patch.read_text() == advice["patch"]
    assert "report-advice-1.patch" in (project / "report.md").read_text()

    subprocess.run(["git", "apply", patch.name], cwd=project, check=True)
    asked = next(
        trial["label"] for trial in reversed(found["trials"]) if "what if" in trial["label"]
    )
    workers = int(asked.partition("num_workers=")[2][0])
    assert f"num_workers={workers}" in (project / "train.py").read_text()
    again = program.run(
        project / "probed",
        *(sys.executable, "train.py", "c.json"),
        cwd=project,
        plan=MeasurePlan(measure_s=0.5, min_steps=10),
    )
    assert again.measured.effects.workers == workers


def test_a_program_that_has_them_on_gets_no_suggestion(project: Path) -> None:
    """As many workers as this host has CPUs, prefetching and persistent: one budget, no trial."""
    code = (project / "train.py").read_text()
    cpus = len(os.sched_getaffinity(0))
    on = f"num_workers={cpus}, prefetch_factor=4, persistent_workers=True"
    (project / "train.py").write_text(code.replace("num_workers=0", on).replace("0.004", "0.0"))
    found = optimized(project, "--budget", "20s")
    assert [trial["label"] for trial in found["trials"] if "persistent" in trial["label"]] == []
    assert [entry for entry in found["advice"] if "prefetch" in entry["title"]] == []
