"""What a real call leaves behind: nothing that shows a secret, nothing open to more people."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from advisor.errors import (
    OPTIMIZE_EXIT_CODES,
    BudgetTooSmallError,
    OutputRefusedError,
    RevertConflictError,
)
from advisor.machine.host import read_machine
from advisor.report import writing
from advisor.report.schema import SuggestionEntry
from advisor.sandbox.capabilities import FORCED
from tests.light import PYTHONPATH
from tests.report import examples
from tests.support.ways import seen

if TYPE_CHECKING:
    from tests import warm

ROOT = Path(__file__).resolve().parents[1]
CONFIG = '{\n  "batch_size": 1,\n  "api_key": "q7Zp2mXw9Lr4"\n}\n'
PROGRAM = """\
import json, sys, time
print(sys.argv, flush=True)
batch = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.02 if batch <= 4 else 0.005 * batch)
    print("done", batch, "items", flush=True)
"""
SETTINGS = """\
[workload.small]
config = "c.json"
command = "{python} run.py {{config}} --token q7Zp2mXw9Lr4"
unit-regex = "done ([0-9]+) items"
phase = "test"
[workload.small.env]
WANDB_API_KEY = "q7Zp2mXw9Lr4"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "c.json").write_text(CONFIG)
    (folder / "c.json").chmod(0o600)
    (folder / "run.py").write_text(PROGRAM)
    (folder / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    return folder


def optimize(
    gpu_advisor: warm.Server, project: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONPATH": PYTHONPATH, "GPU_ADVISOR_RUNTIME_DIR": str(project.parent / "runtime")}
    words = ("c.json", "--window", "0.2s", "--budget", "30s", "--json", *flags)
    return gpu_advisor.call("optimize", *words, cwd=project, env={**os.environ, **own})


LITTERS = """
import os, sys, time
open("preds.jsonl", "x").write("{}")
number = len(os.listdir("runs")) + 1
os.makedirs(f"runs/train-{number}")
os.replace("last.pt", "prev.pt")
print("resumes from", open("prev.pt").read(), flush=True)
open("last.pt", "w").write("a trial's")
while True:
    time.sleep(0.01)
    print("done", flush=True)
"""


def test_a_profile_leaves_the_tree_as_it_was_and_does_not_block_the_next(
    tmp_path: Path, gpu_advisor: warm.Server
) -> None:
    """A program that numbers its runs, rotates its checkpoint and refuses to overwrite; it is run
    twice."""
    project = tmp_path / "project"
    (project / "runs" / "train-1").mkdir(parents=True)
    (project / "last.pt").write_text("mine")
    (project / "run.py").write_text(LITTERS)
    before = seen(project)
    done = gpu_advisor.call(
        "profile", "--json", "--window", "0.2s", "--unit-regex", "done",
        "--", sys.executable, "run.py",
        cwd=project,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["runs"] == 2
    assert seen(project) == before


@pytest.mark.skipif(bool(read_machine().gpus), reason="a card here may stand in")
def test_an_absent_target_and_a_missing_isolation_are_said_before_the_first_trial(
    project: Path, gpu_advisor: warm.Server
) -> None:
    short = ("c.json", "--window", "0.2s")
    absent = "RTX 4060 is not here"
    guard = "not isolated: what the program writes is real"
    for env, argv, expected in (
        (
            {},
            ("optimize", *short, "--budget", "1s", "--target", "rtx-4060"),
            absent,
        ),
        ({FORCED: "guard"}, ("optimize", *short, "--budget", "1s"), guard),
        ({FORCED: "guard"}, ("profile", *short), guard),
    ):
        done = gpu_advisor.call(*argv, cwd=project, env={**os.environ, **env})
        assert expected in done.stderr.partition("trial 1 ")[0], done.stderr


def test_a_call_that_ends_before_its_search_says_so_in_a_report(
    project: Path, gpu_advisor: warm.Server
) -> None:
    """Whatever lies where measurements are kept; a finished report stays, with its patches."""
    (project / ".gpu-advisor").mkdir()
    (project / ".gpu-advisor" / "history.sqlite").write_bytes(b"no database" * 1000)
    program = project / "run.py"
    program.write_text("import time; time.sleep(1.5)\n" + program.read_text())

    def ended() -> str:
        flags = ("--budget", "1s", "--window", "0.2s")
        done = gpu_advisor.call("optimize", "c.json", *flags, cwd=project)
        assert done.returncode == BudgetTooSmallError.exit_code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "is damaged" in ended()
    assert json.loads((project / "report.json").read_text())["verdict"] != "improved"
    assert (project / "c.json").read_text() == CONFIG
    advised = SuggestionEntry(title="a", detail="b", patch="--- a/run.py\n+++ b/run.py\n")
    writing.write(examples.unchanged(suggestions=[advised]), project / "report.md")
    before = {path: path.read_bytes() for path in project.glob("report*") if path.is_file()}
    assert {path.suffix for path in before} == {".md", ".json", ".patch"}
    assert "report.md is still that of an earlier call" in ended()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_no_secret_and_no_wider_mode_in_what_is_left(
    project: Path, gpu_advisor: warm.Server
) -> None:
    """The key beside the changed line, the token of the command and the one of its environment.

    Only the kept original holds the key, as it must.
    """
    done = optimize(gpu_advisor, project, "--output", "tuned/c.json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "improved"
    assert (project / "c.json").read_text() == CONFIG
    assert '"q7Zp2mXw9Lr4"' in (project / "tuned" / "c.json").read_text()
    left = [path for path in project.rglob("*") if path.is_file()]
    shown = {path for path in left if b"q7Zp" in path.read_bytes()}
    assert shown == {project / name for name in ("c.json", "gpu-advisor.toml", "tuned/c.json")}
    assert "q7Zp" not in done.stdout + done.stderr
    report = (project / "report.md").read_text()
    assert '   "api_key": "***"' in report
    own = {project / name for name in ("run.py", "gpu-advisor.toml")}
    state = project / ".gpu-advisor"
    for path in set(left) - own:
        if state not in path.parents:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(state.stat().st_mode) == 0o700

    (project / "tuned" / "c.json").write_text("{}")
    again = optimize(gpu_advisor, project, "--output", "tuned/c.json")
    assert again.returncode == OutputRefusedError.exit_code
    assert (project / "tuned" / "c.json").read_text() == "{}"


@pytest.mark.slow
def test_a_call_killed_at_any_moment_leaves_a_whole_config_and_a_next_call(project: Path) -> None:
    """Killed alone, or with every process that it started."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    advisor = [sys.executable, "-m", "advisor"]
    tune = [*advisor, "optimize", "c.json", "--budget", "20s", "--window", "0.2s"]
    chance, whole = (
        random.Random(os.environ.get("SEED", "")),
        re.escape(CONFIG).replace("1", "[0-9]+", 1),
    )
    for tree in (False, True, False, True):
        running = psutil.Popen(tune, cwd=project, env=env)
        with contextlib.suppress(psutil.TimeoutExpired):
            running.wait(timeout=chance.uniform(0.0, 8.0))
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in running.children(recursive=True) if tree else []:
                process.kill()
            running.kill()
        running.wait()
        assert re.fullmatch(whole, (project / "c.json").read_text())
    again = subprocess.run([*tune, "--budget", "1s"], cwd=project, env=env, check=False)
    assert again.returncode in {*OPTIMIZE_EXIT_CODES.values(), BudgetTooSmallError.exit_code}
    undo = [*advisor, "revert", "c.json", "--all"]
    undone = subprocess.run(undo, cwd=project, env=env, check=False)
    assert undone.returncode in {0, RevertConflictError.exit_code}
    assert (project / "c.json").read_text() == CONFIG
