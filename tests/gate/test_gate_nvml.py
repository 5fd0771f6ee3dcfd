"""The gate on a GPU whose driver is scripted: validity and device facts."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from typing import TYPE_CHECKING

import nvml_stub
import pytest

from advisor.gate.validity import why_discard
from tests import warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The program scripts the driver while it runs, as a sick card would change by itself.
PROGRAM = """
import os, pathlib, time
script = pathlib.Path(os.environ["NVML_STUB_SCRIPT"])
original = script.read_text()
def say(text):  # no reading may see a half of it
    draft = script.with_name("draft")
    draft.write_text(text)
    draft.replace(script)
say(original + {sick}[os.environ["GPU_ADVISOR_ARM"]])
began = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
age = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
time.sleep({seconds} + 3 * age)  # most of the run, whose median counts, however slow its start was
say(original)
print("throughput:", {rate} + os.getpid() % 7 / 100)
"""


def sick(base: str = "", head: str = "") -> dict[str, str]:
    return {"base": base, "head": head}


@pytest.fixture(scope="module")
def on_stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[warm.Server]:
    """Calls the command line in processes that find the scripted driver."""
    folder = tmp_path_factory.mktemp("nvml")
    with warm.Server(env=nvml_stub.build(folder).env()) as server:
        yield server


@pytest.fixture
def card(two, tmp_path: Path, on_stub: warm.Server):
    """Makes a repository on a scripted H100: `card(what base sees, what head sees, ...)`."""
    stub = nvml_stub.build(tmp_path / "nvml")
    stub.write(nvml_stub.H100, {"uuid": f"GPU-{os.getpid()}-{tmp_path.name}"})

    def make(said: dict[str, str], seconds: float = 0.4):
        text = PROGRAM.format(sick=said, seconds=seconds, rate=100)
        repo = two(text, text)
        repo.gpu_advisor = on_stub
        repo.env |= {
            key: value
            for key, value in stub.env().items()
            if key in {"LD_LIBRARY_PATH", "NVML_STUB_SCRIPT"}
        }
        return repo

    make.stub = stub
    return make


BENCH = ("--command", "python bench.py")


def test_a_throttled_card_is_invalid_and_says_why(card) -> None:
    """Its reasons and its clock are read in each run; either would discard the pair."""
    found = card(sick(head="events 0x20\nclock.sm 1890\n")).gate(*BENCH)
    assert found.code == 4, found.stderr
    assert found.record.verdict == "invalid"
    assert "software thermal slowdown" in found.record.workloads[0].reason
    assert found.record.host.gpus == ["NVIDIA H100 80GB HBM3"]
    pair = found.record.programs[0].pairs[0]
    assert (pair.base.gpu.sm_clock_mhz, pair.head.gpu.sm_clock_mhz) == (1980, 1890)
    clock_alone = dataclasses.replace(pair.head.gpu, event_reasons=())
    assert "SM clock of head was" in (why_discard(pair.base.gpu, clock_alone) or "")


@pytest.mark.slow
def test_two_gates_on_one_card_wait_for_each_other(card) -> None:
    repo = card(sick(), seconds=0.5)
    with subprocess.Popen(
        repo.command(*BENCH),
        cwd=repo.path,
        env=repo.environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stderr is not None
        first.stderr.readline()
        second = repo.gate(*BENCH, "--max-minutes", "0.02")
        first.terminate()
        first.stderr.read()
    assert second.code == 4
    assert "Another gpu-advisor" in second.stderr
    assert "Waiting" in second.stderr
