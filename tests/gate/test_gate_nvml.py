"""The gate on a GPU whose driver is scripted: validity, device facts, and clocks given back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import nvml_stub
import pytest

from tests import warm
from tests.gate.repos import WARM_UPS

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


def clock_log(stub: nvml_stub.NvmlStub) -> list[str]:
    path = stub.script.with_name(stub.script.name + ".clocks")
    return path.read_text().split() if path.exists() else []


BUSY_HOST = "busy: others held"
"""Said first where others work on this host while the tests run."""
BENCH = ("--command", "python bench.py")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (sick(head="events 0x20\n"), "software thermal slowdown"),
        (sick(head="clock.sm 1890\n"), "SM clock of head was"),
    ],
    ids=["thermal in head", "clock offset"],
)
def test_a_disturbed_card_is_invalid_and_says_why(card, said, reason: str) -> None:
    found = card(said).gate(*BENCH, "--json")
    assert found.code == 4, found.stderr
    assert found.json["verdict"] == "invalid"
    assert reason in found.json["workloads"][0]["reason"]
    assert found.record.host.gpus == ["NVIDIA H100 80GB HBM3"]


@pytest.mark.slow
def test_a_foreign_process_on_the_card_is_invalid(card) -> None:
    """Another process of this host: the one that runs the tests. Lists of processes are slow to
    read, so the runs are long enough for one."""
    found = card(sick(head=f"processes {os.getpid()}:1000\n"), seconds=1.3).gate(*BENCH, "--json")
    assert found.code == 4, found.stderr
    assert "foreign" in found.json["workloads"][0]["reason"]


def test_a_device_that_changes_between_the_runs_is_invalid(card) -> None:
    """Head leaves the change behind: all later readings are of another device than the first."""
    text = """
import os, pathlib
script = pathlib.Path(os.environ["NVML_STUB_SCRIPT"])
if os.environ["GPU_ADVISOR_ARM"] == "head":
    draft = script.with_name("draft")
    draft.write_text(script.read_text() + "power.limit 500000\\n")
    draft.replace(script)
print("throughput:", 100)
"""
    repo = card(sick())
    repo.commit({"bench.py": text}, "base")
    repo.commit({"x": "1"})
    found = repo.gate(*BENCH, "--json")
    assert found.json["verdict"] == "invalid", found.stderr
    assert "power_limit_w was 700" in found.json["workloads"][0]["reason"]


def test_a_power_cap_is_normal(card) -> None:
    found = card(sick(base="events 0x4\n", head="events 0x4\n")).gate(*BENCH, "--json")
    assert found.code == 0, found.stderr
    pairs = found.record.programs[0].pairs
    assert not any("power cap" in pair.discarded for pair in pairs if pair.discarded)
    run = pairs[0].head.gpu
    assert run.event_reasons["software power cap"] > 0
    assert run.sm_clock_mhz == 1980
    assert found.record.validity.startswith(("unverified: only", BUSY_HOST))


@pytest.mark.slow
def test_without_readings_it_is_unverified_and_goes_on(card) -> None:
    card.stub.write(nvml_stub.H100, {"err.clock.sm": 3, "err.events": 3})
    found = card(sick()).gate(*BENCH)
    assert found.code == 0, found.stderr
    assert found.record.validity.startswith(("unverified", BUSY_HOST))


def test_clocks_are_held_while_measuring_and_given_back(card) -> None:
    found = card(sick(), seconds=0).gate(*BENCH, *WARM_UPS)
    assert found.record.host.clocks == "locked", found.stderr
    assert clock_log(card.stub) == ["lock", "reset"]


def test_a_driver_that_refuses_to_lock_is_reported_and_no_matter(card) -> None:
    card.stub.write(nvml_stub.H100, {"err.clocks": 4})
    found = card(sick(), seconds=0).gate(*BENCH, *WARM_UPS)
    assert found.record.verdict == "inconclusive", found.stderr
    assert found.record.host.clocks.startswith("not locked: the driver refused")
    assert clock_log(card.stub) == []


def test_clocks_are_left_alone_when_asked(card) -> None:
    """One gate in which head breaks at once, with the clocks held and without."""
    repo = card(sick(), seconds=0)
    repo.commit({"bench.py": "raise SystemExit(1)"})
    repo.gate(*BENCH, *WARM_UPS, "--lock-clocks", "off")
    assert clock_log(card.stub) == []
    repo.gate(*BENCH, *WARM_UPS)
    assert clock_log(card.stub) == ["lock", "reset"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_gate_gives_the_clocks_back(card, number) -> None:
    """By itself on SIGTERM; on SIGKILL by what a job's last step calls."""
    repo = card(sick(), seconds=1)
    with repo.begun(*BENCH) as gate:
        gate.until("warming up")
        time.sleep(0.5)
        code = gate.stopped(number)
    assert clock_log(card.stub)[:1] == ["lock"]
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
        subprocess.run(
            [*repo.command()[:1], "-m", "advisor.gate.clocks"],
            cwd=repo.out, env=repo.environment(), check=True, capture_output=True,
        )  # fmt: skip
    else:
        assert code == 4
    assert clock_log(card.stub) == ["lock", "reset"]


def test_the_clocks_of_a_gate_that_lives_are_left_alone(card) -> None:
    """What gives back the clocks of killed gates does not touch those of a running one."""
    repo = card(sick(), seconds=1)
    with repo.begun(*BENCH) as gate:
        gate.until("warming up")
        command = [*repo.command()[:1], "-m", "advisor.gate.clocks"]
        subprocess.run(command, cwd=repo.out, env=repo.environment(), check=True)
        assert clock_log(card.stub) == ["lock"]
        gate.stopped(signal.SIGTERM)
    assert clock_log(card.stub) == ["lock", "reset"]


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
