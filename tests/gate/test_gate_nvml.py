"""The gate on a GPU whose driver is scripted: a throttled card, and two gates on one card."""

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
    from pathlib import Path

    from tests.gate.repos import Repo

# Head scripts the driver while it runs, as a sick card would change by itself.
PROGRAM = """
import os, pathlib, time
script = pathlib.Path(os.environ["NVML_STUB_SCRIPT"])
original = script.read_text()
def say(text):  # no reading may see a half of it
    draft = script.with_name("draft")
    draft.write_text(text)
    draft.replace(script)
if os.environ["GPU_ADVISOR_ARM"] == "head":
    say(original + "events 0x20\\nclock.sm 1890\\n")
began = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
age = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
time.sleep(0.4 + 3 * age)  # most of the run, whose median counts, however slow its start was
say(original)
print("throughput:", 100 + os.getpid() % 7 / 100)
"""
BENCH = ("--command", "python bench.py")


@pytest.fixture
def on_card(two, tmp_path: Path) -> Repo:
    """A repository on a scripted H100, whose head throttles."""
    stub = nvml_stub.build(tmp_path / "nvml")
    stub.write(nvml_stub.H100, {"uuid": f"GPU-{os.getpid()}-{tmp_path.name}"})
    repo = two(PROGRAM, PROGRAM)
    repo.env |= {name: stub.env()[name] for name in ("LD_LIBRARY_PATH", "NVML_STUB_SCRIPT")}
    return repo


def test_a_throttled_card_is_invalid_and_says_why(on_card: Repo, tmp_path: Path) -> None:
    """Its reasons and its clock are read in each run; either would discard the pair."""
    with warm.Server(env=nvml_stub.build(tmp_path / "nvml").env()) as on_card.gpu_advisor:
        found = on_card.gate(*BENCH)
    assert found.code == 4, found.stderr
    assert found.record.verdict == "invalid"
    assert "software thermal slowdown" in found.record.workloads[0].reason
    assert found.record.host.gpus == ["NVIDIA H100 80GB HBM3"]
    pair = found.record.programs[0].pairs[0]
    assert (pair.base.gpu.sm_clock_mhz, pair.head.gpu.sm_clock_mhz) == (1980, 1890)
    clock_alone = dataclasses.replace(pair.head.gpu, event_reasons=())
    assert "SM clock of head was" in (why_discard(pair.base.gpu, clock_alone) or "")


@pytest.mark.slow
def test_two_gates_on_one_card_wait_for_each_other(on_card: Repo) -> None:
    with subprocess.Popen(
        on_card.command(*BENCH), cwd=on_card.path, env=on_card.environment(),
        stderr=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stderr is not None
        first.stderr.readline()
        second = on_card.gate(*BENCH, "--max-minutes", "0.02")
        first.terminate()
        first.stderr.read()
    assert second.code == 4
    assert "Another gpu-advisor" in second.stderr
    assert "Waiting" in second.stderr
