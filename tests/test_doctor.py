"""`gpu-advisor doctor`: faults of a machine with their remedies, and what a call leaves."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import nvml_stub
import pytest

from advisor.commands.doctor import Readings, TorchFacts, as_text, asking, checked, verdict
from advisor.machine.lock import gpu_lock
from advisor.model import Disturbance, Neighbour
from advisor.sandbox.policy import SandboxPolicy
from tests.runs import a_gpu
from tests.support.simulator.engine import QUIET_MACHINE

ROOT = Path(__file__).resolve().parents[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")} | {
    "PYTHONPATH": str(ROOT)
}
H100 = a_gpu("NVIDIA H100 80GB HBM3", 79.6, "9.0")
TORCH = TorchFacts(
    python="3.11.7", executable="/env/bin/python", torch="2.9.1", cuda="12.6", available=True
)
MACHINE = replace(QUIET_MACHINE, gpus=(H100,), cpus=16, ram_limit_gib=128.0)
WELL = Readings(
    machine=MACHINE,
    cpus_shown=16,
    ram_left_gib=100.0,
    shm_left_gib=64.0,
    nvidia_devices=1,
    uvm_missing=False,
    isolation=SandboxPolicy(kind="overlay"),
    crowd=Disturbance(disturbed=False, others_cpus=0.1),
    own_calls=(),
    torch=TORCH,
)
"""A machine that costs nothing."""
GUARD = SandboxPolicy(kind="guard", why_not_better="overlay: EPERM")
CROWD = Disturbance(disturbed=True, others_cpus=6.0, who=(Neighbour(name="ffmpeg", cpus=6.0),))


def on(**changes: Any) -> Readings:
    return replace(WELL, **changes)


def torch(**changes: Any) -> Readings:
    return on(torch=TORCH.model_copy(update=changes))


def no_cards(note: str, devices: int = 1) -> Readings:
    machine = replace(MACHINE, gpus=(), gpu_note=note)
    return on(machine=machine, nvidia_devices=devices)


def test_each_kind_of_isolation_is_told_with_why_no_better_one_holds() -> None:
    policy = SandboxPolicy(kind="landlock", why_not_better="overlay: a key ring went through")
    found = checked(on(isolation=policy))["isolation"]
    assert found.value == "landlock (overlay: a key ring went through)"


@pytest.mark.parametrize(
    ("name", "readings", "value", "fix"),
    [
        ("GPU", no_cards("No driver is installed.", 2), "2 NVIDIA on the bus", "nvidia-smi"),
        ("GPU", no_cards("CUDA_VISIBLE_DEVICES='' hides it."), "hides", "unset CUDA_VISIBLE"),
        ("GPU", on(uvm_missing=True), "/dev/nvidia-uvm is missing", "nvidia-modprobe"),
        ("memory", on(ram_left_gib=3.0), "3.0 of 128.0 GiB left", "ps "),
        ("shared memory", on(shm_left_gib=0.06), "0.06 GiB", "--shm-size"),
        ("other programs", on(crowd=CROWD), "6.0 of 16 CPUs busy (ffmpeg 6.0)", "ps "),
        ("other programs", on(crowd=CROWD, own_calls=("process 7",)), "process 7", "has ended"),
        ("isolation", on(isolation=GUARD), "overlay: EPERM", "sysctl"),
        ("torch", torch(cuda=None, available=False), "built for CPUs", "pip install"),
        ("torch", torch(available=False, warned=("too old",)), "too old", "pip install"),
    ],
)
def test_each_fault_is_one_row_with_its_value_and_remedy(name, readings, value, fix) -> None:
    found = checked(readings)
    assert [each for each in found if found[each].status == "fix"] == [name]
    assert value in found[name].value
    assert fix in (found[name].fix or "")
    assert as_text(found).startswith(verdict(found))


@pytest.mark.parametrize(
    "readings",
    [WELL, on(isolation=SandboxPolicy(kind="landlock")), no_cards("No driver is installed.", 0)],
)
def test_a_normal_state_is_no_fault(readings) -> None:
    found = checked(readings)
    assert {each.status for each in found.values()} <= {"good", "none"}
    assert verdict(found) == "Nothing to fix here."


def test_a_card_that_is_not_there_is_not_called_good() -> None:
    found = checked(no_cards("No driver is installed.", 0))
    assert found["GPU"].status == "none"
    assert "good" not in next(line for line in as_text(found).splitlines() if "GPU" in line)


def test_an_unreadable_value_is_neither_good_nor_to_fix() -> None:
    silent = on(shm_left_gib=None, crowd=Disturbance(), torch="python3 gave no answer")
    unknown = {name for name, each in checked(silent).items() if each.status == "unknown"}
    assert unknown == {"shared memory", "other programs", "torch"}


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An interpreter that has no torch."""
    path = tmp_path / "bin" / "python"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return path


def test_a_call_reads_driver_torch_and_lock_and_leaves_nothing(
    gpu_advisor, bare_python, tmp_path, monkeypatch
) -> None:
    """No file of the project is run, and another call of ours is named as the disturbance."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "torch.py").write_text("raise SystemExit('a file of the project was run')\n")
    project.chmod(0o555)
    stub = nvml_stub.build(tmp_path / "nvml")
    stub.write(nvml_stub.H100)
    monkeypatch.setenv("GPU_ADVISOR_RUNTIME_DIR", str(tmp_path / "locks"))
    env = {**stub.env(CLEAN), "GPU_ADVISOR_RUNTIME_DIR": str(tmp_path / "locks")}
    words = ("doctor", "--json", "--", str(bare_python), "x.py")
    with gpu_lock(None):
        done = gpu_advisor.call(*words, cwd=project, env=env)
    assert done.returncode in {0, 1}, done.stderr
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert nvml_stub.H100["name"] in found["GPU"]["value"]
    assert found["torch"]["status"] == "unknown"
    assert "ModuleNotFoundError" in found["torch"]["value"]
    assert found["isolation"]["value"].split()[0] in {"overlay", "landlock", "guard"}
    assert f"process {os.getpid()}" in found["other programs"]["value"]
    assert [path.name for path in project.iterdir()] == ["torch.py"]


def test_strict_exits_with_1_and_a_mistake_of_the_call_with_2(
    gpu_advisor, bare_python, tmp_path, monkeypatch
) -> None:
    """An interpreter that answers nonsense is no torch."""
    bare_python.write_text("#!/bin/sh\necho '{\"python\": 7}'; echo gone wrong >&2; exit 3\n")
    env = {**CLEAN, "GPU_ADVISOR_ISOLATION": "guard"}
    asked = ("doctor", "--strict", "--", str(bare_python))
    strict = gpu_advisor.call(*asked, cwd=tmp_path, env=env)
    assert strict.returncode == 1
    assert "to fix here" in strict.stdout.splitlines()[0]
    for words in ("unset GPU_ADVISOR_ISOLATION", "gone wrong"):
        assert words in strict.stdout
    env = {**CLEAN, "GPU_ADVISOR_ISOLATION": "no such isolation"}
    wrong = gpu_advisor.call("doctor", cwd=tmp_path, env=env)
    assert wrong.returncode == 2, wrong.stderr
    assert wrong.stderr.count("\n") == 1, wrong.stderr


def test_the_interpreter_is_that_of_the_command(bare_python) -> None:
    """Never through what may install, ask for a job, or a password."""
    path = f"{bare_python.parent}:/usr/bin:/bin"
    own = "/opt/py/bin/python3.12"
    assert asking([own, "-m", "x"], path) == own
    assert asking([], path) == str(bare_python)
    for command in (["uv", "run", "python", "t.py"], ["torchrun", "t.py"], ["bash", "run.sh"]):
        assert asking(command, path) is None
    launcher = bare_python.parent / "torchrun"
    for first, python in ((own, own), ("/usr/bin/env python", str(bare_python)), ("/bin/sh", None)):
        launcher.write_text(f"#!{first}\n")
        launcher.chmod(0o755)
        assert asking(["env", "A=1", "torchrun", "t.py"], path) == python
    assert asking(["torchrun", "run", "python"], path) is None
