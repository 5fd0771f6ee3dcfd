"""The whole command on a host with several cards: what it tells is of the one that was used."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import OPTIMIZE_EXIT_CODES
from tests import nvml_stub, simulated_gpu
from tests.gpu.conftest import LARGE, SMALL
from tests.light import PYTHONPATH
from tests.support.processes import Done, ran

PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "programs"
ON_THE_BUS = {
    "count": 2,
    "gpu0.name": SMALL.name, "gpu0.uuid": SMALL.uuid, "gpu0.capability": "8.6",
    "gpu0.memory.total": 24 * nvml_stub.GIB, "gpu0.util": 37, "gpu0.power": 210_000,
    "gpu0.power.limit": 350_000, "gpu0.clock.sm": 1695,
    "gpu1.name": LARGE.name, "gpu1.uuid": LARGE.uuid, "gpu1.memory.total": 80 * nvml_stub.GIB,
    "gpu1.util": 91, "gpu1.power": 650_000,
}  # fmt: skip
"""NVML counts by bus, and CUDA shows the fastest first: what is card 1 to the one is 0 to the
other."""

pytest.importorskip("torch")


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """Two cards, for torch and for NVML."""
    stub = nvml_stub.build(tmp_path / "nvml")
    stub.write(nvml_stub.H100, ON_THE_BUS)
    own = {
        "PYTHONPATH": os.pathsep.join([PYTHONPATH, str(PROGRAMS)]),
        "GPU_ADVISOR_RUNTIME_DIR": str(tmp_path),
        "NO_COLOR": "1",
    }
    base = stub.env({**os.environ, **own})
    return simulated_gpu.environment((LARGE, SMALL), base=base)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "train.json").write_text('{"batch_size": 4, "num_workers": 0, "lr": 0.01}\n')
    return folder


def called(project: Path, environ: Mapping[str, str], *words: str, device: str) -> Done:
    program = (str(PROGRAMS / "gpu_tuned.py"), "--config", "train.json", "--device", device)
    command = (sys.executable, "-m", "advisor", *words, "--", sys.executable, *program)
    return ran(*command, cwd=project, env=environ, timeout=200)


@pytest.mark.slow
def test_profile_tells_of_the_card_in_use(project, environ) -> None:
    """Its utilisation, the memory that it has, and its datasheet."""
    done = called(project, environ, "profile", "--json", "--window", "2s", device="cuda:1")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    text = " ".join([found["bottleneck"]["sentence"], *found["bottleneck"]["evidence"]])
    assert found["gpu_util_pct"] == 37
    assert 0 < found["gpu_mem_used_gib"] < 80
    assert SMALL.name.removeprefix("NVIDIA ") in text
    assert LARGE.name not in text
    assert found["effects"]["device"] == "cuda:1"
    assert found["achieved_tflops"] > 0


ON_LARGE = {**nvml_stub.H100, "name": LARGE.name, "uuid": LARGE.uuid}


def profiled(stub: nvml_stub.NvmlStub, words: str, **own: str) -> dict[str, Any]:
    """`profile` of a loop on the large card."""
    base = stub.env({**os.environ, "PYTHONPATH": PYTHONPATH, **own})
    program = (sys.executable, str(PROGRAMS / "gpu_loop.py"), *words.split())
    tool = (sys.executable, "-m", "advisor", "profile", "--json", "--window", "3s", "--")
    env = simulated_gpu.environment((LARGE,), base=base)
    done = ran(*tool, *program, cwd=stub.folder, env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("other", "--train --loader --host 60 --kernel 20"),
        ("launch", "--train --loader --small 300"),
    ],
)
def test_utilisation_and_shares_agree(cause, words, tmp_path) -> None:
    """The driver's figure is that of the same work, and no sentence contradicts it."""
    stub = nvml_stub.build(tmp_path)
    with nvml_stub.metered(stub, ON_LARGE) as meter:
        found = profiled(stub, words, **meter)
    assert found["bottleneck"]["name"] == cause
    at_work = 100 * found["shares"].get("compute", 0.0)
    if found["gpu_util_pct"] is None:  # the driver's figure is a mean of up to a second
        assert found["window"]["end"] - found["window"]["start"] < 1.5
    elif cause == "launch":  # the card works between launches, where only the driver sees it
        assert found["gpu_util_pct"] >= at_work - 10
    else:
        assert found["gpu_util_pct"] == pytest.approx(at_work, abs=10)


@pytest.mark.slow
def test_a_card_that_throttles_is_said(tmp_path) -> None:
    """No rate of it is a steady one."""
    stub = nvml_stub.build(tmp_path)
    stub.write(ON_LARGE, events=0x40)
    found = profiled(stub, "--train --loader --kernel 20 --item")
    assert found["disturbed"] is True
    assert "slowed down by itself: hardware thermal slowdown" in found["load_note"]


@pytest.mark.slow
@pytest.mark.nightly
def test_optimize_aims_at_the_card_in_use(project, environ) -> None:
    """Target, memory limit, utilisation and power of torch's card 0, which the driver counts as 1;
    before the program ran, the driver's first was the aim."""
    budget = ("--window", "2s", "--budget", "2m")
    done = called(project, environ, "optimize", "train.json", "--json", *budget, device="cuda:0")
    assert done.returncode in OPTIMIZE_EXIT_CODES.values(), done.stderr
    report: dict[str, Any] = json.loads((project / "report.json").read_text())
    assert "H100" in report["target"]
    assert "not on this" not in report["target"]
    assert SMALL.memory_gib < report["memory_limit_gib"] <= LARGE.memory_gib
    assert report["before"]["gpu_util_pct"] == 91
    assert report["before"]["figures"]["power"] == 650
    text = " ".join(report["bottleneck_before"]["evidence"])
    assert "H100" in text, text
    assert "RTX 3090" not in text
    page = (project / "report.md").read_text()
    assert LARGE.name in page
