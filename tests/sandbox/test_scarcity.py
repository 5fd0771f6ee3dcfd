"""Calls where something is scarce: room on a disk, the right to write, a home."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from advisor.errors import (
    FAILURE_EXIT_CODES,
    BudgetTooSmallError,
    ConfigReadOnlyError,
    OutputRefusedError,
    StateUnusableError,
)
from tests.light import PYTHONPATH
from tests.sandbox.conftest import NAMESPACE
from tests.support import kills
from tests.support.processes import Done, ran

ROOT = Path(__file__).resolve().parents[2]


def call(folder: Path, world: str, *argv: str, **env: str) -> Done:
    """`gpu-advisor ARGV` in the project, after the shell commands `world`."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    for name, text in (("c.json", '{"batch_size": 1}\n'), ("gpu-advisor.toml", COUNTED)):
        if not (project / name).exists():
            (project / name).write_text(text)
    own = {"PYTHONPATH": PYTHONPATH, "XDG_STATE_HOME": str(folder / "elsewhere")}
    words = (sys.executable, "-m", "advisor", *argv)
    inside = (*NAMESPACE, "sh", "-ec", f'{world}\ncd project; exec "$@"', "sh", *words)
    return ran(*inside, cwd=folder, env={**os.environ, **own, **env})


COUNTED = '[workload.counted]\ncommand = "true"\nunit-regex = "done"\n'
PROFILE = ("profile", "--window", "0.2s", "--workload", "counted", "--", "sh", "-c")
ENDLESS = "while sleep 0.02; do echo done; done"


def test_a_full_disk_below_tmpdir_is_told_as_that(tmp_path) -> None:
    """Not as a program that never took a step: the probe could not say what it saw."""
    world = "mkdir tmp; mount -t tmpfs -o size=8m none tmp"
    fills = f"{sys.executable} -c pass; cat /dev/zero > $TMPDIR/x 2> /dev/null; exit 0"
    done = call(tmp_path, world, *PROFILE[:3], *PROFILE[-3:], fills, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == FAILURE_EXIT_CODES["disk-full"], done.stdout
    assert "has no space left" in done.stdout


def test_a_call_with_no_room_below_tmpdir_says_so_at_once(tmp_path) -> None:
    world = "mkdir tmp; mount -t tmpfs -o size=400k none tmp"
    done = call(tmp_path, world, *PROFILE, ENDLESS, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == FAILURE_EXIT_CODES["disk-full"]
    assert "KiB left" in done.stderr
    assert "trial 1" not in done.stderr


def test_a_disk_without_inodes_is_told_as_that(tmp_path) -> None:
    """It has room, and none for another file: the probe could not say what it saw."""
    world = "mkdir tmp; mount -t tmpfs -o size=64m,nr_inodes=400 none tmp"
    fills = (
        f"{sys.executable} -c pass; i=0; "
        "while touch $TMPDIR/$i; do i=$((i + 1)); done 2> /dev/null; exit 0"
    )
    done = call(tmp_path, world, *PROFILE[:3], *PROFILE[-3:], fills, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == FAILURE_EXIT_CODES["disk-full"], done.stdout
    assert "no inode for another file" in done.stdout


def test_a_call_with_no_inodes_below_tmpdir_says_so_at_once(tmp_path) -> None:
    world = "mkdir tmp; mount -t tmpfs -o size=64m,nr_inodes=20 none tmp"
    done = call(tmp_path, world, *PROFILE, ENDLESS, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == FAILURE_EXIT_CODES["disk-full"]
    assert "more files (inodes)" in done.stderr


def test_without_any_place_for_temporary_files_it_is_a_sentence(tmp_path) -> None:
    world = (
        "mkdir locks; mount --bind . .; mount -o remount,bind,ro .; mount -o remount,bind,ro /\n"
        f"cd {tmp_path}; mount -t tmpfs none locks"
    )
    locks = str(tmp_path / "locks" / "own")
    done = call(tmp_path, world, *PROFILE, ENDLESS, GPU_ADVISOR_RUNTIME_DIR=locks)
    assert done.returncode == StateUnusableError.exit_code, done.stderr
    assert "Set TMPDIR" in done.stderr


def test_without_a_place_for_locks_it_is_a_sentence(tmp_path) -> None:
    done = call(tmp_path, "", *PROFILE, ENDLESS, GPU_ADVISOR_RUNTIME_DIR="/proc/nowhere")
    assert done.returncode == StateUnusableError.exit_code
    assert "Set GPU_ADVISOR_RUNTIME_DIR" in done.stderr


def test_a_full_disk_below_the_project_is_said_before_anything_runs(tmp_path, project) -> None:
    """Not after the measuring, when neither config nor report could be written."""
    world = (
        "mkdir full; cp project/* full; mount -t tmpfs -o size=200k none project\n"
        "cp full/* project; cat /dev/zero > project/filler 2> /dev/null || true"
    )
    done = call(tmp_path, world, "optimize", "c.json")
    assert done.returncode == OutputRefusedError.exit_code, done.stderr
    assert "No space left" in done.stderr
    assert "trial 1" not in done.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_what_was_proven_is_reported_although_the_original_cannot_be_kept(
    tmp_path, project
) -> None:
    """The state folder takes measurements, and then no file more."""
    world = "mkdir project/.gpu-advisor; mount -t tmpfs -o nr_inodes=6 none project/.gpu-advisor"
    done = call(tmp_path, world, "optimize", "c.json", "--window", "0.2s", "--budget", "2m")
    assert done.returncode == StateUnusableError.exit_code, done.stderr
    assert "could not be kept" in done.stderr
    assert (project / "c.json").read_text() == '{"batch_size": 1}\n'
    report = json.loads((project / "report.json").read_text())
    assert report["verdict"] == "improved"
    assert report["written"] is None


READ_ONLY = "mount --bind project project; mount -o remount,bind,ro project"
PROGRAM = """
import json, sys, time
batch = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.004 + 0.0001 * batch)
    print("done", batch, "items", flush=True)
"""
SETTINGS = """
[workload.small]
config = "c.json"
command = "{python} run.py {{config}}"
unit-regex = "done ([0-9]+) items"
phase = "test"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With a program that takes a config."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "run.py").write_text(PROGRAM)
    (folder / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    return folder


@pytest.mark.slow
def test_a_read_only_project_can_be_looked_at(tmp_path, project) -> None:
    """--dry-run writes no config, the report goes elsewhere; also after it was tuned."""
    again = ("--dry-run", "--report", str(tmp_path / "out" / "r.md"), "--window", "0.2s")
    first = call(tmp_path, READ_ONLY, "optimize", "c.json", "--budget", "1s", *again)
    assert first.returncode in {0, BudgetTooSmallError.exit_code}, first.stderr
    assert (tmp_path / "out" / "r.json").is_file()
    assert {path.name for path in project.iterdir()} == {"c.json", "run.py", "gpu-advisor.toml"}
    kills.rewrite(project / "c.json")
    later = call(tmp_path, READ_ONLY, "optimize", "c.json", "--budget", "1s", *again)
    assert later.returncode in {0, BudgetTooSmallError.exit_code}, later.stderr


def test_what_a_read_only_project_cannot_do_is_said_before_anything_runs(tmp_path, project) -> None:
    refused = {
        ("optimize", "c.json"): ConfigReadOnlyError,
        ("optimize", "c.json", "--dry-run"): OutputRefusedError,
    }
    for argv, problem in refused.items():
        done = call(tmp_path, READ_ONLY, *argv)
        assert done.returncode == problem.exit_code, done.stderr
        assert "read-only" in done.stderr.lower()
        assert "trial 1" not in done.stderr


NOBODY = 'set -- unshare -U --map-user=54321 "$@"; unset HOME XDG_STATE_HOME XDG_CACHE_HOME'
"""A number without a name, as containers run programs."""


def test_a_user_without_a_home_may_tune(tmp_path, project) -> None:
    """The state lies in the project; where that is read-only, what to set is said."""
    done = call(tmp_path, NOBODY, "revert", "c.json")
    assert "never rewritten" in done.stderr
    argv = ("optimize", "c.json", "--budget", "1s", "--window", "0.2s", "--dry-run")
    done = call(tmp_path, NOBODY, *argv)
    assert done.returncode in {0, BudgetTooSmallError.exit_code}, done.stderr
    assert (project / "report.md").is_file()
    shutil.rmtree(project / ".gpu-advisor")
    done = call(tmp_path, f"{READ_ONLY}; {NOBODY}", *argv, "--report", str(tmp_path / "r.md"))
    assert done.returncode == StateUnusableError.exit_code
    assert "Set XDG_STATE_HOME" in done.stderr
