"""Gates where something runs out: room on the disk, and a line that does not end."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from advisor.runner.output import Stream, Tally
from tests.gate.repos import STEADY, Gated, Repo
from tests.sandbox.conftest import NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

FILLS = """
import os, pathlib
folder = pathlib.Path(os.environ["GPU_ADVISOR_SPEC"]).parents[1]
try:
    with open(folder / "fill", "wb", buffering=0) as file:
        while file.write(bytes(1 << 20)): pass
except OSError:
    pass
print("throughput:", 100)
"""
"""Fills the disk on which the gate keeps what runs tell."""


def on_a_small_disk(repo: Repo, *flags: str) -> Gated:
    disk = repo.out / "disk"
    disk.mkdir()
    env = repo.environment({"TMPDIR": str(disk), "GPU_ADVISOR_ISOLATION": "guard"})
    script = f'mount -t tmpfs -o size=12m none {disk}; exec "$@"'
    done = subprocess.run(
        [*NAMESPACE, "sh", "-ec", script, "sh", *repo.command(*flags)],
        cwd=repo.path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return repo.ended(done.returncode, done.stdout, done.stderr)


def test_a_disk_that_fills_up_in_a_run_is_one_sentence(two) -> None:
    """No verdict on what was told by half, no traceback, and no program killed by a full log."""
    found = on_a_small_disk(two(STEADY.format(rate=100), FILLS), "--command", "python bench.py")
    assert (found.code, found.record.verdict) == (2, "error")
    assert "KiB left. Free space there" in found.record.reason
    assert "Traceback" not in found.stderr


def test_a_disk_that_fills_up_in_setup_is_one_sentence(two) -> None:
    fills = 'head -c 30M /dev/zero > "$TMPDIR/../../fill"; true'
    repo = two(STEADY.format(rate=100), STEADY.format(rate=99))
    found = on_a_small_disk(repo, "--command", "python bench.py", "--setup", fills)
    assert (found.code, found.record.verdict) == (2, "error")
    assert "KiB left. Free space there" in found.record.reason
    assert "Traceback" not in found.stderr


def test_a_log_that_takes_no_more_leaves_the_pipe_open(tmp_path: Path) -> None:
    """Who writes into a pipe that nobody reads is killed: the program would fail for our disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    read, write = os.pipe()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        stream = Stream(read, tmp_path / "log", Tally("unit"))
        with os.fdopen(write, "wb", buffering=0) as pipe:
            for _ in range(20):
                pipe.write(b"x" * 9999 + b"\nunit\n")
            pipe.write(b"the end")
        stream.join(10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert stream.tail().endswith(b"the end")
    assert (tmp_path / "log").stat().st_size <= 1000


@pytest.mark.slow
def test_a_line_of_200_mb_takes_seconds_and_the_rate_after_it_counts(repo: Repo) -> None:
    """Of a line only its beginning is looked at, and of a long output its beginning and end."""
    text = 'import sys; sys.stdout.write("x" * (200 << 20) + "\\nthroughput: 100\\n")'
    repo.commit({"bench.py": text})
    found = repo.gate("--command", "python bench.py", "--mode", "history", "--history", "h.json")
    assert found.code == 0, found.stderr
    assert found.record.workloads[0].source == "throughput line"
    assert found.record.workloads[0].head_units_per_s == pytest.approx(100)
