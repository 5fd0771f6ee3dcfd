"""`--objective` and `--constraint` on real programs: refused early, or obeyed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from advisor.errors import AdvisorError, NotMeasuredError, UsageError
from advisor.machine.host import read_machine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Server

LINES = """
import json, sys, time

batch = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.001 * batch)
    print("done", flush=True)
"""
SETTINGS = '[workload.a]\ncommand = "x"\nunit-regex = "done"\nconfig = "a.json"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.json").write_text('{"batch_size": 4}\n')
    (tmp_path / "run.py").write_text(LINES)
    (tmp_path / "gpu-advisor.toml").write_text(SETTINGS)
    return tmp_path


@pytest.mark.skipif(bool(read_machine().gpus), reason="a card here may tell its energy")
@pytest.mark.parametrize(
    ("flags", "error", "part"),
    [
        (("--objective", "energy"), NotMeasuredError, "Only a GPU's own counters"),
        (("--constraint", "power<=250W"), NotMeasuredError, "Only a GPU's own counters"),
        (("--constraint", "memory<=7GiB", "power<=3"), NotMeasuredError, ""),
        (("--constraint", "memory<7"), UsageError, "is no constraint; write NAME<=NUMBERUNIT"),
        (("--objective", "cost"), UsageError, "invalid choice"),
    ],
)
def test_an_aim_that_cannot_be_measured_or_read_is_refused_before_anything_runs(
    project: Path,
    gpu_advisor: Server,
    flags: tuple[str, ...],
    error: type[AdvisorError],
    part: str,
) -> None:
    words = ("--", sys.executable, "run.py", "a.json")
    done = gpu_advisor.call("optimize", "a.json", *flags, *words, cwd=project)
    assert done.returncode == error.exit_code, done.stderr
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert "trial 1" not in done.stderr
    assert not (project / "report.md").exists()


def test_a_figure_that_the_original_does_not_tell_ends_the_call_before_the_search(
    project: Path, gpu_advisor: Server
) -> None:
    """Lines of output tell no batch, so how long one takes is not known."""
    done = gpu_advisor.call(
        "optimize", "a.json", "--window", "0.2s", "--constraint", "latency_p95<=80ms",
        "--", sys.executable, "run.py", "a.json", cwd=project,
    )  # fmt: skip
    assert done.returncode == NotMeasuredError.exit_code, done.stderr
    assert "latency_p95 could not be measured" in done.stderr
    assert json.loads((project / "a.json").read_text()) == {"batch_size": 4}
