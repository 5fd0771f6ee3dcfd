"""`gpu-advisor doctor` on real hosts: what it prints, what it exits with, and what it leaves."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nvml_stub
import pytest

from advisor.commands.doctor.interpreter import asking
from advisor.machine.lock import gpu_lock
from tests.sandbox.conftest import NAMESPACE

if TYPE_CHECKING:
    from tests.warm import Server

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("CUDA", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_"))
} | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An interpreter that has no torch."""
    path = tmp_path / "bin" / "python"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return path


def checks_of(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The checks of `--json` by area and name."""
    assert done.returncode in {0, 1}, done.stderr
    checks = json.loads(done.stdout)["checks"]
    return {f"{check['area']}: {check['name']}": check for check in checks}


def test_it_works_without_gpu_and_torch_and_leaves_nothing(
    gpu_advisor: Server, bare_python: Path, tmp_path: Path
) -> None:
    """Rows are there, no file is written, and the exit is 0."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "torch.py").write_text("raise SystemExit('a file of the project was run')\n")
    (project / "numpy.py").write_text("raise SystemExit('a file of the project was run')\n")
    project.chmod(0o555)
    done = gpu_advisor.call(
        "doctor", "--json", "--python", str(bare_python), cwd=project, env=CLEAN
    )
    assert done.returncode == 0, done.stderr
    found = checks_of(done)
    assert found["torch: torch"]["status"] == "unknown"
    assert "ModuleNotFoundError" in found["torch: torch"]["value"]
    assert found["host: isolation"]["value"].split()[0] in {"overlay", "landlock", "guard"}
    assert sorted(path.name for path in project.iterdir()) == ["numpy.py", "torch.py"]
    bare_python.write_text("#!/bin/sh\necho '{\"torch_facts\": 7}'; echo gone wrong >&2; exit 3\n")
    asked = ("doctor", "--json", "--python", str(bare_python))
    broken = checks_of(gpu_advisor.call(*asked, cwd=tmp_path, env=CLEAN))
    assert "gone wrong" in broken["torch: torch"]["value"]
    assert broken["torch: threads"]["status"] == "unknown"


def test_strict_exits_with_1_and_a_mistake_of_the_call_with_2(
    gpu_advisor: Server, bare_python: Path, tmp_path: Path
) -> None:
    asked = ("doctor", "--python", str(bare_python))
    env = {**CLEAN, "GPU_ADVISOR_ISOLATION": "guard"}
    plain = gpu_advisor.call(*asked, cwd=tmp_path, env=env)
    strict = gpu_advisor.call(*asked, "--strict", cwd=tmp_path, env=env)
    assert (plain.returncode, strict.returncode) == (0, 1)
    assert "to fix here" in strict.stdout.splitlines()[0]
    assert "unset GPU_ADVISOR_ISOLATION" in strict.stdout
    for flags, name in ((("--python", "/no/such/python"), ""), ((), "no such isolation")):
        wrong = gpu_advisor.call(
            "doctor", *flags, cwd=tmp_path, env={**CLEAN, "GPU_ADVISOR_ISOLATION": name}
        )
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr


@pytest.mark.parametrize(
    "world",
    [
        "mount -t tmpfs none /proc",  # no /proc at all
        "mount -t tmpfs none /sys",
        "for each in stat meminfo; do mount --bind /dev/null /proc/$each; done",
    ],
)
def test_it_works_in_odd_containers(bare_python: Path, tmp_path: Path, world: str) -> None:
    """What /proc or /sys do not tell is not known; nothing raises."""
    call = f'{world} || exit 99; exec {sys.executable} -m advisor doctor --json "$@"'
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", call, "sh", "--python", str(bare_python)],
        env=CLEAN,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip(f"no such mounts here: {done.stderr.strip()}")
    found = checks_of(done)
    assert "Traceback" not in done.stderr
    unknown = {name for name, check in found.items() if check["status"] == "unknown"}
    if "/proc" in world:
        assert {"host: memory", "host: other programs"} <= unknown


def test_the_rows_of_a_card_come_from_the_driver(
    gpu_advisor: Server, bare_python: Path, tmp_path: Path
) -> None:
    """A scripted driver: lanes lost, held down by heat, one stranger at work."""
    stub = nvml_stub.build(tmp_path / "nvml")
    stub.write(
        nvml_stub.H100,
        {"pcie.width": 8, "events": 0x40, "power.limit": 500_000},
        {"processes": f"4711:{2**30}", "working": "4711:80"},
    )
    done = gpu_advisor.call(
        "doctor", "--json", "--python", str(bare_python), cwd=tmp_path, env=stub.env(CLEAN)
    )
    found = checks_of(done)
    wrong = {name for name, check in found.items() if check["status"] == "fix"}
    parts = ("power limit", "clocks", "PCIe link", "other processes")
    assert {f"GPU 0: {part}" for part in parts} <= wrong
    assert found["GPU 0: MIG"]["value"] == "off"
    stub.write({"count": 1})
    silent = checks_of(
        gpu_advisor.call(
            "doctor", "--json", "--python", str(bare_python), cwd=tmp_path, env=stub.env(CLEAN)
        )
    )
    rows = {name: check["status"] for name, check in silent.items() if name.startswith("GPU 0")}
    known = {name for name, status in rows.items() if status != "unknown"}
    assert known == {"GPU 0: other processes", "GPU 0: MIG"}
    assert {rows[name] for name in known} == {"good"}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_is_asked_as_the_command_would_start_it(gpu_advisor: Server, tmp_path: Path) -> None:
    """Variables that the command sets count, and that they contradict each other."""
    pools = ("OMP_NUM_THREADS=1", "MKL_NUM_THREADS=2")
    wanted = ("env", *pools, sys.executable, "train.py", "--lr", "1")
    done = gpu_advisor.call("doctor", "--json", "--", *wanted, cwd=tmp_path, env=CLEAN)
    found = checks_of(done)
    assert found["torch: torch"]["status"] == "good"
    assert sys.executable in found["torch: torch"]["value"]
    assert found["torch: threads"]["value"].endswith(", ".join(pools))
    assert found["torch: threads"]["fix"] == "export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1"


def test_another_call_of_ours_is_named_as_the_disturbance(
    gpu_advisor: Server, bare_python: Path, tmp_path: Path
) -> None:
    asked = ("doctor", "--json", "--python", str(bare_python))
    env = {**CLEAN, "GPU_ADVISOR_RUNTIME_DIR": str(tmp_path / "locks")}
    with gpu_lock(None, folder=tmp_path / "locks"):
        found = checks_of(gpu_advisor.call(*asked, cwd=tmp_path, env=env))
    assert f"process {os.getpid()}" in found["host: other programs"]["value"]
    ended = checks_of(gpu_advisor.call(*asked, cwd=tmp_path, env=env))
    assert "gpu-advisor itself" not in ended["host: other programs"]["value"]


def test_the_interpreter_is_that_of_the_command(bare_python: Path, tmp_path: Path) -> None:
    """Through what only passes on; never through what may install, ask for a job, or a password."""
    path = {"PATH": f"{bare_python.parent}:/usr/bin:/bin"}
    script = bare_python.parent / "torchrun"
    script.write_text(f"#!{bare_python}\n")
    script.chmod(0o755)
    cases: list[tuple[list[str], list[str] | None]] = [
        (["python", "train.py"], ["python"]),
        (["/opt/py/bin/python3.12", "-m", "x"], ["/opt/py/bin/python3.12"]),
        (["env", "A=1", "python", "t.py"], ["env", "A=1", "python"]),
        (["taskset", "-c", "0", "python3", "t.py"], ["taskset", "-c", "0", "python3"]),
        (["torchrun", "--nproc-per-node", "2", "train.py"], [str(bare_python)]),
        (["uv", "run", "python", "t.py"], None),
        (["sudo", "python", "t.py"], None),
        (["srun", "python", "t.py"], None),
        (["bash", "run.sh"], None),
        ([], [str(bare_python)]),
    ]
    for command, words in cases:
        assert asking(None, command, path) == words, command
