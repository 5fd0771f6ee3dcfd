"""What no config holds, end to end: found, measured, patched, and said once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.errors import OPTIMIZE_EXIT_CODES
from advisor.model import MeasurePlan
from tests.probe import program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2, reason="one CPU: no number of workers is faster"
    ),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "train.py").write_bytes((program.PROGRAMS / "whatif_train.py").read_bytes())
    (tmp_path / "c.json").write_text('{"lr": 0.1}\n')
    return tmp_path


def test_loader_arguments_in_the_code_are_found_measured_and_patched(project, gpu_advisor) -> None:
    """The patch applies, the patched program really has the workers, and nothing is left to say."""
    code = (project / "train.py").read_text()
    done = gpu_advisor.call(
        "optimize", "c.json", "--window", "0.4s", "--budget", "150s",
        "--", sys.executable, "train.py", "c.json",
        cwd=project, timeout_s=500.0,
    )  # fmt: skip
    assert done.returncode in OPTIMIZE_EXIT_CODES.values(), done.stderr
    found = json.loads((project / "report.json").read_text())
    (advice,) = found["suggestions"]
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "DataLoader(" in text)
    assert advice["site"] == f"train.py:{line}"
    assert advice["gain"]["low"] > 1.03
    assert "num_workers=" in advice["title"]
    assert (project / "train.py").read_text() == code
    patch = project / "report-advice-1.patch"
    assert patch.read_text().endswith(advice["patch"])
    assert "report-advice-1.patch" in (project / "report.md").read_text()

    subprocess.run(["git", "apply", patch.name], cwd=project, check=True)
    workers = int(advice["title"].partition("num_workers=")[2].partition(",")[0])
    assert f"num_workers={workers}" in (project / "train.py").read_text()
    plan = MeasurePlan(measure_s=0.5, min_steps=10)
    command = (sys.executable, "train.py", "c.json")
    probed = program.run(project / "probed", *command, cwd=project, plan=plan)
    assert probed.measured.effects.workers == workers
