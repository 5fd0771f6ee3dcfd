"""What no config holds, end to end: found, measured, patched, and said once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from advisor.errors import OPTIMIZE_EXIT_CODES
from advisor.model import MeasurePlan
from tests.light import PYTHONPATH
from tests.probe import program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2, reason="one CPU: no number of workers is faster"
    ),
]


def optimized(gpu_advisor: Server, project: Path, *flags: str) -> dict[str, Any]:
    """report.json of a call over `project`."""
    done = gpu_advisor.call(
        "optimize", "c.json", "--window", "0.4s", *flags,
        "--", sys.executable, "train.py", "c.json",
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "GPU_ADVISOR_RUNTIME_DIR": str(project / ".lock"),
        },
        timeout_s=500.0,
    )  # fmt: skip
    assert done.returncode in OPTIMIZE_EXIT_CODES.values(), done.stderr
    found: dict[str, Any] = json.loads((project / "report.json").read_text())
    return found


def workers_of(project: Path) -> int | None:
    """Workers that the program really runs with."""
    found = program.run(
        project / "probed",
        *(sys.executable, "train.py", "c.json"),
        cwd=project,
        plan=MeasurePlan(measure_s=0.5, min_steps=10),
    )
    return found.measured.effects.workers


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "train.py").write_bytes((program.PROGRAMS / "whatif_train.py").read_bytes())
    (tmp_path / "c.json").write_text('{"lr": 0.1}\n')
    return tmp_path


def test_loader_arguments_in_the_code_are_found_measured_and_patched(
    project: Path, gpu_advisor: Server
) -> None:
    """The patch applies, the patched program really has the workers, and nothing is left to say."""
    code = (project / "train.py").read_text()
    found = optimized(gpu_advisor, project, "--budget", "150s")
    (advice,) = found["suggestions"]
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "DataLoader(" in text)
    assert advice["site"] == f"train.py:{line} DataLoader(...)"
    assert advice["gain"]["low"] > 1.03
    assert "num_workers=" in advice["title"]
    assert (project / "train.py").read_text() == code
    patch = project / "report-advice-1.patch"
    assert patch.read_text().endswith(advice["patch"])
    assert "report-advice-1.patch" in (project / "report.md").read_text()

    subprocess.run(["git", "apply", patch.name], cwd=project, check=True)
    workers = int(advice["title"].partition("num_workers=")[2].partition(",")[0])
    assert f"num_workers={workers}" in (project / "train.py").read_text()
    assert workers_of(project) == workers


PASSED_ON = """\
import json, sys, time, torch
torch.set_num_threads(1)
class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), index % 7 / 7), index % 4
settings = json.load(open(sys.argv[1]))
loader = torch.utils.data.DataLoader(Points(), **settings["loader"])
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_key_that_the_config_lacks_is_suggested(project: Path, gpu_advisor: Server) -> None:
    """The program passes the mapping on; the config gets no keys of ours."""
    config, before = project / "c.json", b'{"loader": {"batch_size": 4}, "lr": 0.1}\n'
    config.write_bytes(before)
    (project / "train.py").write_text(PASSED_ON)
    found = optimized(gpu_advisor, project, "--budget", "90s")
    assert config.read_bytes() == before
    assert any("num_workers" in each["title"] for each in found["suggestions"]), found["reason"]
