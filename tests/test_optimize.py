"""The whole line with real processes: measure, choose, prove, write, report, undo."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from advisor import config as documents, errors
from tests.light import PYTHONPATH

if TYPE_CHECKING:
    from tests import warm

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
CONFIG = """\
# restoration of masked signals
inference:
  sampler: {num_inference_steps: 60}   # more is smoother
  loader:
    batch_size: 1      # one signal at a time
    # batch_size: 64   # on the big card
    num_workers: 0
  n_samples: 4
output_dir: results
"""

pytest.importorskip("torch")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "infer.yaml").write_text(CONFIG)
    (tmp_path / "restore.py").write_bytes((PROGRAMS / "opt_restore.py").read_bytes())
    return tmp_path


def environment(project: Path) -> dict[str, str]:
    own = {"PYTHONPATH": PYTHONPATH, "GPU_ADVISOR_RUNTIME_DIR": str(project / ".lock")}
    return {**os.environ, **own, "NO_COLOR": "1"}


RESTORE = (sys.executable, "restore.py", "--cfg", "infer.yaml", "--limit", "32")
"""Few signals: the largest batch that they fill is found in five processes."""


Optimize = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def optimize(project: Path, gpu_advisor: warm.Server) -> Optimize:
    """Calls it on the config in the project."""

    def call(*flags: str, command: tuple[str, ...] = RESTORE) -> subprocess.CompletedProcess[str]:
        words = ("infer.yaml", "--window", "0.5s", *flags, "--", *command)
        return gpu_advisor.call("optimize", *words, cwd=project, env=environment(project))

    return call


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == errors.OPTIMIZE_EXIT_CODES[found["verdict"]], done.stderr
    assert found["reason"]
    return found


@pytest.mark.slow
def test_a_sampler_of_another_shape_is_tuned_proven_written_and_put_back(
    project: Path, optimize: Optimize, gpu_advisor: warm.Server
) -> None:
    """One journey, because each part of it stands on the one before."""
    config = project / "infer.yaml"
    found = result_of(optimize("--json", "--budget", "2m"))

    assert found["verdict"] == "improved"
    assert found["gain"]["low"] > 1.03
    assert found["gain"]["pairs"] >= 4
    changes = {change["path"]: change for change in found["changes"]}
    loader = {"inference.loader.batch_size", "inference.loader.num_workers"}
    assert {"inference.loader.batch_size"} <= changes.keys() <= loader
    assert {change["knob_class"] for change in changes.values()} == {"free"}
    assert found["after"]["units_per_s"] > found["before"]["units_per_s"]

    tuned = config.read_text()
    expected = CONFIG
    for path, change in changes.items():
        name = path.rpartition(".")[2]
        expected = expected.replace(f" {name}: {change['old']}", f" {name}: {change['new']}", 1)
    assert tuned == expected
    assert not list(project.glob(".*gpu-advisor-*"))
    assert not (project / "results").exists(), "outputs of trials belong into scratch"

    report = json.loads((project / "report.json").read_text())
    assert report["before"]["forwards_per_unit"] == 60
    decisions = {entry["path"]: entry for entry in report["decisions"]}
    steps = decisions["inference.sampler.num_inference_steps"]
    assert steps["outcome"] == "listed", "no quality measure was declared"
    first_screen = "\n".join((project / "report.md").read_text().splitlines()[:40])
    assert "| `batch_size` |" in first_screen
    assert "gpu-advisor revert" in first_screen

    again = result_of(optimize("--json", "--budget", "2m"))
    assert again["verdict"] in {"unchanged", "partial"}, "the budget may end before the last idea"
    assert again["changes"] == []
    assert config.read_text() == tuned

    undone = gpu_advisor.call("revert", "infer.yaml", cwd=project, env=environment(project))
    assert undone.returncode == 0, undone.stderr
    assert config.read_text() == CONFIG


LINES = """\
import re, sys, time
batch = int(re.search(r"batch_size: ([0-9]+)", open(sys.argv[1]).read())[1])
while True:
    time.sleep(0.004 + 0.001 * batch)
    print("done", batch, "signals", flush=True)
"""
SETTINGS = """\
[workload.lines]
config = "infer.yaml"
command = "{python} lines.py {{config}}"
unit-regex = "done ([0-9]+) signals"
phase = "test"
"""


def proven(project: Path, gpu_advisor: warm.Server, *flags: str) -> dict[str, Any]:
    """What a call on the program without torch printed: it has changes."""
    (project / "lines.py").write_text(LINES)
    (project / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    words = ("infer.yaml", *flags, "--json", "--window", "0.2s")
    done = gpu_advisor.call("optimize", *words, cwd=project, env=environment(project))
    found = result_of(done)
    assert found["changes"], "a program that sleeps gains by a batch in any weather"
    assert (project / "infer.yaml").read_text() == CONFIG
    return found


@pytest.mark.slow
def test_a_dry_run_writes_no_config(project: Path, gpu_advisor: warm.Server) -> None:
    """Whatever it proved."""
    proven(project, gpu_advisor, "--dry-run", "--budget", "25s")


@pytest.mark.slow
def test_the_tuned_file_can_go_elsewhere(project: Path, gpu_advisor: warm.Server) -> None:
    """It holds what was proven, and is the original otherwise."""
    found = proven(project, gpu_advisor, "--output", "tuned.yaml", "--budget", "25s")
    changes = {change["path"]: change for change in found["changes"]}
    assert "inference.loader.batch_size" in changes
    tuned = documents.read(project / "tuned.yaml")
    for path, change in changes.items():
        assert tuned.scalars[path].value == change["new"]
    before = {path: change["old"] for path, change in changes.items()}
    assert tuned.with_values(before) == CONFIG.encode()


TWO = """\
import re, sys, time
step_s = float(re.search(r"step_s: (\\S+)", open(sys.argv[1]).read())[1])
batch = int(re.search(r"batch_size: ([0-9]+)", open(sys.argv[2]).read())[1])
while True:
    time.sleep(step_s + 0.001 * batch)
    print("done", batch, "signals", flush=True)
"""


@pytest.mark.slow
def test_two_configs_are_tuned_written_and_reverted_together(
    project: Path, gpu_advisor: warm.Server
) -> None:
    """The batch lies in the second one; the first one stays as it is."""
    (project / "lines.py").write_text(TWO)
    (project / "gpu-advisor.toml").write_text(
        SETTINGS.format(python=sys.executable).replace("infer.yaml", "model.yaml")
    )
    texts = {"model.yaml": "step_s: 0.004  # slow\n", "data.yaml": "batch_size: 1  # one\n"}
    for name, text in texts.items():
        (project / name).write_text(text)
    command = (sys.executable, "lines.py", *texts)
    flags = ("--json", "--window", "0.2s", "--budget", "40s")
    alone = ("optimize", "model.yaml", "--budget", "1s", "--", *command)
    done = gpu_advisor.call(*alone, cwd=project, env=environment(project))
    assert "`gpu-advisor optimize model.yaml data.yaml -- ...` tunes it too" in done.stderr
    words = ("optimize", *texts, *flags, "--", *command)
    found = result_of(gpu_advisor.call(*words, cwd=project, env=environment(project)))
    (change,) = found["changes"]
    assert (change["document"], change["path"]) == ("data.yaml", "batch_size")
    tuned = texts["data.yaml"].replace("1", str(change["new"]), 1)
    assert (project / "data.yaml").read_text() == tuned
    assert (project / "model.yaml").read_text() == texts["model.yaml"]
    undo = ("revert", "data.yaml")
    assert found["config"] == "model.yaml, data.yaml"
    assert gpu_advisor.call(*undo, cwd=project, env=environment(project)).returncode == 0
    assert (project / "data.yaml").read_text() == texts["data.yaml"]


FAILURES = {
    "a config that does not parse": (12, "a: [1\n", None, "line"),
    "a command that never names the config": (16, CONFIG, ("python", "x.py"), "never names"),
    "a crash at import": (
        34,
        CONFIG,
        (sys.executable, "-c", "import nowhere # infer.yaml"),
        "nowhere",
    ),
    "a program that never reaches a step": (
        38,
        CONFIG,
        (sys.executable, "-c", "import torch # infer.yaml"),
        "step",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_each_refusal_has_its_code_one_message_and_writes_nothing(
    project: Path, optimize: Optimize, case: str
) -> None:
    code, text, command, expected = FAILURES[case]
    (project / "infer.yaml").write_text(text)
    done = optimize(command=command or RESTORE)
    assert done.returncode == code, done.stderr
    assert expected in done.stderr
    assert "Traceback (most recent call last)" not in done.stderr.split("\n")[0]
    assert (project / "infer.yaml").read_text() == text
    assert done.stdout == ""
    assert not list(project.glob(".*gpu-advisor-*"))


@pytest.mark.slow
def test_a_hang_has_its_code_and_names_the_line(project: Path, optimize: Optimize) -> None:
    """Found so long after the last step as the limit says, with where every thread stood."""
    program = project / "restore.py"
    program.write_text(
        program.read_text().replace("    return signal\n", "    __import__('time').sleep(1e6)\n")
    )
    (project / "gpu-advisor.toml").write_text('[defaults]\nhang-limit = "3s"\n')
    done = optimize()
    assert done.returncode == errors.FAILURE_EXIT_CODES["hang"], done.stderr
    assert "restore.py" in done.stderr
    assert (project / "infer.yaml").read_text() == CONFIG
    assert not list(project.glob(".*gpu-advisor-*"))


def test_a_config_without_rights_file_or_command_is_refused_before_anything_runs(
    project: Path, optimize: Optimize, gpu_advisor: warm.Server
) -> None:
    (project / "infer.yaml").chmod(0o444)
    locked = optimize()
    assert (locked.returncode, "read-only" in locked.stderr) == (13, True)
    (project / "infer.yaml").unlink()
    missing = optimize()
    assert (missing.returncode, "infer.yaml" in missing.stderr) == (10, True)
    (project / "infer.yaml").write_text(CONFIG)
    alone = gpu_advisor.call("optimize", "infer.yaml", cwd=project, env=environment(project))
    assert alone.returncode == errors.CommandMissingError.exit_code
    assert "gpu-advisor optimize infer.yaml -- python YOUR_SCRIPT.py" in alone.stderr
    assert not (project / "report.md").exists()
    assert "trial 1" not in locked.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_the_config_no_process_a_partial_report_and_a_way_on(
    project: Path, optimize: Optimize
) -> None:
    before = (project / "infer.yaml").read_bytes()
    words = ("optimize", "infer.yaml", "--window", "0.5s", "--", *RESTORE)
    running = subprocess.Popen(
        [sys.executable, "-m", "advisor", *words],
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = ""
    assert running.stderr is not None
    for line in running.stderr:
        seen += line
        if line.startswith("trial ") and "  search  " in line:  # baselines are measured anew
            break
    running.send_signal(signal.SIGINT)
    rest = running.communicate(timeout=60)[1]
    assert running.returncode == 130, seen + rest
    assert (project / "infer.yaml").read_bytes() == before
    assert not list(project.glob(".*gpu-advisor-*"))
    left = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(project)]
    assert not left
    assert json.loads((project / "report.json").read_text())["verdict"] == "partial"

    measured = set(re.findall(r"^trial \d+  (.+?)  search  ", seen, re.MULTILINE))
    assert measured
    found = result_of(optimize("--json", "--budget", "50s"))
    report = json.loads((project / "report.json").read_text())
    assert found["runs"] == sum(not trial["reused"] for trial in report["trials"])
    again = [t for t in report["trials"] if t["purpose"] == "search" and t["label"] in measured]
    # A machine that changed its speed meanwhile is told so, and measured again.
    set_aside = any("set aside" in note for note in report["notes"])
    assert set_aside or all(trial["reused"] for trial in again), again
