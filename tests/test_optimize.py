"""Whole calls of `optimize`: measure, choose, prove, write, report, undo, and what they leave."""

import contextlib
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from advisor import errors
from advisor.machine.host import read_machine
from advisor.report import writing
from advisor.report.schema import SuggestionEntry
from advisor.sandbox.capabilities import FORCED
from tests import warm
from tests.report import examples
from tests.support.processes import Done, begun

PROGRAMS = Path(__file__).resolve().parent / "fixtures" / "programs"
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
LINES = """\
import re, sys, time
print(sys.argv, flush=True)
text = "".join(open(name).read() for name in sys.argv[1:] if name.endswith((".yaml", ".json")))
batch = int(re.search(r'batch_size"?: ([0-9]+)', text)[1])
while True:
    time.sleep(0.02 if batch <= 4 else 0.005 * batch)
    print("done", batch, "signals", flush=True)
"""
SETTINGS = """\
[workload.lines]
config = "c.json"
command = "{python} lines.py {{config}} --token q7Zp2mXw9Lr4"
unit-regex = "done ([0-9]+) signals"
phase = "test"
[workload.lines.env]
WANDB_API_KEY = "q7Zp2mXw9Lr4"
"""
SECRET = '{\n  "batch_size": 1,\n  "api_key": "q7Zp2mXw9Lr4"\n}\n'
"""Config of the program without torch."""
SAMPLE = '{"seed": 1, "sampling": {"batch_size": 1, "steps": 10}}\n'
QUICK = ("--window", "0.2s", "--json", "--budget")

pytest.importorskip("torch")

Call = Callable[..., Done]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "infer.yaml").write_text(CONFIG)
    (folder / "ordinary_sample.py").write_bytes((PROGRAMS / "ordinary_sample.py").read_bytes())
    (folder / "sample.json").write_text(SAMPLE)
    (folder / "lines.py").write_text(LINES)
    (folder / "c.json").write_text(SECRET)
    (folder / "c.json").chmod(0o600)
    (folder / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    return folder


@pytest.fixture
def call(project: Path, gpu_advisor: warm.Server) -> Call:
    """Calls a command in the project."""

    def called(*words: str, **env: str) -> Done:
        return gpu_advisor.call(*words, cwd=project, env={**os.environ, **env})

    return called


def result_of(done: Done) -> dict[str, Any]:
    """Object that a finished search printed."""
    found: dict[str, Any] = json.loads(done.stdout)
    verdict = "partial" if found["work_left"] else found["verdict"]
    assert done.returncode == errors.OPTIMIZE_EXIT_CODES[verdict], done.stderr
    assert found["reason"]
    return found


@pytest.mark.slow
@pytest.mark.nightly
def test_two_configs_are_tuned_written_and_reverted_together(project, call) -> None:
    """The batch lies in the second one; the first one stays as it is."""
    texts = {"model.yaml": "step_s: 0.004  # slow\n", "data.yaml": "batch_size: 1  # one\n"}
    for name, text in texts.items():
        (project / name).write_text(text)
    command = ("--workload", "lines", "--", sys.executable, "lines.py", *texts)
    alone = call("optimize", "model.yaml", "--budget", "1s", *command)
    assert "`gpu-advisor optimize model.yaml data.yaml -- ...` tunes it too" in alone.stderr
    dry = result_of(call("optimize", *texts, *QUICK, "90s", "--dry-run", *command))
    assert dry["changes"], "a program that sleeps gains by a batch in any weather"
    assert {name: (project / name).read_text() for name in texts} == texts
    found = result_of(call("optimize", *texts, *QUICK, "90s", *command))
    (change,) = found["changes"]
    assert change["document"] == "data.yaml"
    assert change["path"] == "batch_size"
    tuned = texts["data.yaml"].replace("1", str(change["new"]), 1)
    assert (project / "data.yaml").read_text() == tuned
    assert (project / "model.yaml").read_text() == texts["model.yaml"]
    assert found["config"] == "model.yaml, data.yaml"
    assert call("revert", "data.yaml").returncode == 0
    assert (project / "data.yaml").read_text() == texts["data.yaml"]


PYTHON = sys.executable
CARDS = "Only a GPU's own counters"
REFUSED: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "a config that is gone": (10, "gone.py", ("gone.py", "--", PYTHON, "gone.py")),
    "a config that does not parse": (12, "line", ("bad.yaml", "--", "sh", "x", "bad.yaml")),
    "a read-only config": (13, "read-only", ("locked.yaml", "--", "sh", "x", "locked.yaml")),
    "a config of two names": (13, "--output", ("twice.yaml", "--", "sh", "x", "twice.yaml")),
    "no command": (16, "gpu-advisor optimize infer.yaml -- python YOUR_SCRIPT.py", ("infer.yaml",)),
    "a program that is not there": (16, "'pyhton' is not in PATH", ("--", "pyhton", "lines.py")),
    "a script that is not there": (16, "gone.py does not exist", ("--", PYTHON, "-u", "gone.py")),
    "a card that is not known": (19, "rtx-1", ("--target", "rtx-1", "--", "sh", "lines.py")),
    "a crash at import": (34, "nowhere", ("--", PYTHON, "-c", "import nowhere")),
    "a program without a step": (38, "step", ("--", PYTHON, "-c", "import torch")),
    "a bound that is none": (2, "is no constraint", ("c.json", "--constraint", "memory<7")),
    "an unknown objective": (2, "invalid choice", ("c.json", "--objective", "cost")),
    "energy without a card": (25, f"{CARDS} tell energy. ", ("c.json", "--objective", "energy")),
    "power without a card": (
        25,
        f"{CARDS} tell power. ",
        ("c.json", "--constraint", "memory<=7GiB", "power<=3W"),
    ),
    "a figure that was not measured": (
        25,
        "latency_p95 could not be measured",
        ("c.json", "--window", "0.2s", "--constraint", "latency_p95<=80ms"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_has_its_code_one_message_and_writes_nothing(project, call, case) -> None:
    if CARDS in REFUSED[case][1] and read_machine().gpus:
        pytest.skip("a card here may tell its energy")
    (project / "bad.yaml").write_text("a: [1\n")
    (project / "locked.yaml").write_text(CONFIG)
    (project / "locked.yaml").chmod(0o444)
    (project / "twice.yaml").write_text(CONFIG)
    (project / "second-name.yaml").hardlink_to(project / "twice.yaml")
    before = {path: path.read_bytes() for path in project.iterdir() if path.is_file()}
    code, expected, words = REFUSED[case]
    done = call("optimize", *words)
    assert done.returncode == code, done.stderr
    assert done.stdout == "", done.stderr
    assert expected in done.stderr
    assert not done.stderr.startswith("Traceback")
    after = {path: path.read_bytes() for path in project.iterdir() if path.is_file()}
    assert after == before


@pytest.mark.skipif(bool(read_machine().gpus), reason="a card here may stand in")
def test_an_absent_target_and_a_missing_isolation_are_said_before_the_first_trial(call) -> None:
    guard = "not isolated: what the program writes is real"
    for env, words, expected in (
        ({}, ("optimize", "--budget", "1s", "--target", "rtx-4060"), "RTX 4060 is not here"),
        ({FORCED: "guard"}, ("optimize", "--budget", "1s"), guard),
        ({FORCED: "guard"}, ("profile",), guard),
    ):
        done = call(*words, "c.json", "--window", "0.2s", **env)
        assert expected in done.stderr.partition("trial 1 ")[0], done.stderr


def test_a_budget_below_the_baseline_ends_with_a_report_unless_a_finished_one_is_there(
    project, call
) -> None:
    """Whatever lies where measurements are kept."""
    (project / ".gpu-advisor").mkdir()
    (project / ".gpu-advisor" / "history.sqlite").write_bytes(b"no database" * 1000)
    (project / "lines.py").write_text(f"import time; time.sleep(1.5)\n{LINES}")
    done = call("optimize", "c.json", *QUICK, "1s")
    assert done.returncode == errors.BudgetTooSmallError.exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert "is damaged" in done.stderr
    assert json.loads((project / "report.json").read_text())["verdict"] != "improved"
    assert (project / "c.json").read_text() == SECRET

    advised = SuggestionEntry(title="a", detail="b", patch="--- a/run.py\n+++ b/run.py\n")
    writing.write(examples.unchanged(suggestions=[advised]), project / "report.md")
    before = {path: path.read_bytes() for path in project.glob("report*") if path.is_file()}
    assert {path.suffix for path in before} == {".md", ".json", ".patch"}
    done = call("optimize", "c.json", *QUICK, "1s")
    assert done.returncode == errors.BudgetTooSmallError.exit_code, done.stderr
    assert "report.md is still that of an earlier call" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_ctrl_c_leaves_the_config_no_process_a_partial_report_and_a_way_on(project, call) -> None:
    words = ("optimize", "sample.json", "--window", "0.5s")
    program = ("--", sys.executable, "ordinary_sample.py", "sample.json")
    running = begun(sys.executable, "-m", "advisor", *words, *program, cwd=project)
    seen = ""
    for line in running.stderr:
        seen += line
        if line.startswith("trial ") and "  search  " in line:  # baselines are measured anew
            break
    running.send_signal(signal.SIGINT)
    rest = running.communicate(timeout=60)[1]
    assert running.returncode == 130, seen + rest
    assert (project / "sample.json").read_text() == SAMPLE
    assert not list(project.glob(".*gpu-advisor-*"))
    left = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(project)]
    assert not left
    assert json.loads((project / "report.json").read_text())["verdict"] == "partial"

    measured = set(re.findall(r"^trial \d+  (.+?)  search  ", seen, re.MULTILINE))
    assert measured
    found = result_of(call(*words, "--json", "--budget", "60s", *program))
    report = json.loads((project / "report.json").read_text())
    assert found["runs"] == sum(not trial["reused"] for trial in report["trials"])
    again = [t for t in report["trials"] if t["purpose"] == "search" and t["label"] in measured]
    # A machine that changed its speed meanwhile is told so, and measured again.
    set_aside = any("set aside" in note for note in report["notes"])
    assert set_aside or all(trial["reused"] for trial in again), again


@pytest.mark.slow
def test_a_call_killed_at_any_moment_leaves_a_whole_config_and_a_next_call(project) -> None:
    """Killed alone, or with every process that it started."""
    advisor = [sys.executable, "-m", "advisor"]
    tune = [*advisor, "optimize", "c.json", *QUICK, "20s"]
    chance = random.Random(os.environ.get("SEED", ""))
    whole = re.escape(SECRET).replace("1", "[0-9]+", 1)
    for tree in (False, True, False, True):
        running = psutil.Popen(tune, cwd=project)
        with contextlib.suppress(psutil.TimeoutExpired):
            running.wait(timeout=chance.uniform(0.0, 8.0))
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in running.children(recursive=True) if tree else []:
                process.kill()
            running.kill()
        running.wait()
        assert re.fullmatch(whole, (project / "c.json").read_text())
    again = subprocess.run([*tune, "--budget", "1s"], cwd=project, check=False)
    too_small = errors.BudgetTooSmallError.exit_code
    assert again.returncode in {*errors.OPTIMIZE_EXIT_CODES.values(), too_small}
    undo = [*advisor, "revert", "c.json", "--all"]
    undone = subprocess.run(undo, cwd=project, check=False)
    assert undone.returncode in {0, errors.RevertConflictError.exit_code}
    assert (project / "c.json").read_text() == SECRET


@pytest.mark.slow
def test_no_secret_and_no_wider_mode_in_what_is_left(project, call) -> None:
    """The key beside the changed line, the token of the command and the one of its environment.

    Only the kept original holds the key, as it must.
    """
    words = ("optimize", "c.json", *QUICK, "60s", "--output", "tuned/c.json")
    done = call(*words)
    assert result_of(done)["verdict"] == "improved"
    assert (project / "c.json").read_text() == SECRET
    assert '"q7Zp2mXw9Lr4"' in (project / "tuned" / "c.json").read_text()
    left = [path for path in project.rglob("*") if path.is_file()]
    shown = {path for path in left if b"q7Zp" in path.read_bytes()}
    assert shown == {project / name for name in ("c.json", "gpu-advisor.toml", "tuned/c.json")}
    assert "q7Zp" not in done.stdout + done.stderr
    report = (project / "report.md").read_text()
    assert '   "api_key": "***"' in report
    assert r"output lines that match 'done (\[0-9\]+) signals'." in report
    state = project / ".gpu-advisor"
    written = [*project.glob("report*"), project / "tuned" / "c.json"]
    for path in filter(Path.is_file, written):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(state.stat().st_mode) == 0o700

    (project / "tuned" / "c.json").write_text("{}")
    assert call(*words).returncode == errors.OutputRefusedError.exit_code
    assert (project / "tuned" / "c.json").read_text() == "{}"
