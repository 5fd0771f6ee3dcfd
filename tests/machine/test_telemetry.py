"""The sampling thread, on the stub library and on this host as it is."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
import stub_timeline

from advisor.machine.telemetry import Sampler, _Owner

if TYPE_CHECKING:
    from advisor.machine.recording import Recording
    from tests.machine.conftest import StubProcess

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def played(shared_process: StubProcess) -> tuple[Recording, float, float]:
    """A recording of the stub's timeline, and the window in which it was busy."""
    return shared_process.call(stub_timeline.play, str(shared_process.stub.folder))


def test_a_scripted_timeline_is_summed_up(played: tuple[Recording, float, float]) -> None:
    """From library to summary: window, energy, event shares, clocks, processes."""
    seen, start, end = played
    found = seen.summary(start + 0.2, end - 0.2)
    assert found.gaps == ()
    assert (found.gpu_util_pct, found.power_w, found.gpu_mem_used_gib) == (97.0, 600.0, 30.0)
    assert found.sm_clock_mhz == 1700.0
    assert found.energy_j == pytest.approx(600.0 * (end - start - 0.4), rel=0.15)
    assert (found.busy_samples or 0) > 10
    shares = dict(found.event_reasons)
    assert shares["software power cap"] == 1.0
    assert 0.2 < shares["software thermal slowdown"] < 0.8
    assert "idle" not in shares
    assert found.foreign_pids == 2


def test_without_a_gpu_every_figure_has_the_reason() -> None:
    with Sampler(environ=NO_GPU, interval_s=0.02) as sampler:
        start = time.time()
    found = sampler.summary(start, time.time())
    figures = dataclasses.asdict(found)
    assert {value for name, value in figures.items() if name != "gaps"} == {None, ()}
    assert len({why for _, why in found.gaps}) == 1


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
print(child.pid, flush=True)
"""


def test_descendants_are_the_programs_own() -> None:
    """And stay so after their end, when the driver may still list them for a moment."""
    code = PARENT + "child.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        assert root.stdout is not None
        worker = int(root.stdout.readline())
        owner = _Owner([root.pid])
        assert owner.split([root.pid, worker, 1]) == ((root.pid, worker), ())
        root.communicate()
    assert owner.split([worker]) == ((worker,), ())
    assert _Owner([root.pid]).split([2**30]) == ((), (2**30,))


def test_an_orphan_of_the_programs_group_is_its_own() -> None:
    """Trials lead a process group: a worker that outlives its parent is still theirs."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as root:
        assert root.stdout is not None
        worker = int(root.stdout.readline())
        root.wait()
        assert psutil.Process(worker).ppid() != root.pid
        assert _Owner([root.pid]).split([worker]) == ((worker,), ())
        assert _Owner([1_000_000]).split([worker]) == ((), ())
