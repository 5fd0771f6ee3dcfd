"""The sampling thread, on the stub library and on this host as it is."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import nvml_stub
import pytest

from advisor.machine.telemetry import Sampler, _Owner

if TYPE_CHECKING:
    from advisor.model import Telemetry
    from tests.machine.conftest import StubProcess

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def watched() -> Telemetry:
    """What half a second of the stub's card comes to; our parent is a stranger on it."""
    with Sampler(pids=[os.getpid()], interval_s=0.05, environ={}) as sampler:
        start = time.time()
        time.sleep(1.5)
    return sampler.summary(start, time.time())


def test_the_card_is_summed_up_from_library_to_telemetry(nvml: StubProcess) -> None:
    working = f"{nvml.pid}:80,{os.getpid()}:50"
    nvml.stub.write(
        nvml_stub.H100, power=600_000, events=0x4,
        processes=f"{nvml.pid}:1000,{os.getpid()}:-", working=working,
    )  # fmt: skip
    found = nvml.call(watched)
    assert (found.gpu_util_pct, found.power_w, found.gpu_mem_used_gib) == (97.0, 600.0, 12.0)
    assert (found.busy_samples or 0) > 10
    assert dict(found.event_reasons) == {"software power cap": 1.0}
    assert found.foreign_pids == 1
    assert [field for field, _ in found.gaps] == ["energy_j"]  # two seconds are needed


def test_without_a_gpu_every_figure_has_the_reason() -> None:
    with Sampler([os.getpid()], environ=NO_GPU, interval_s=0.02) as sampler:
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


@pytest.mark.parametrize("end", ["child.wait()", ""], ids=["a child", "an orphan"])
def test_descendants_and_orphans_are_the_programs_own(end: str) -> None:
    """And stay so after their end, when the driver may still list them for a moment."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT + end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as root:
        assert root.stdout is not None
        worker = int(root.stdout.readline())
        if not end:
            root.wait()
        owner = _Owner([root.pid])
        assert owner.split([root.pid, worker, 1]) == ((root.pid, worker), ())
        assert _Owner([1_000_000]).split([worker]) == ((), ())
        root.communicate()
    assert owner.split([worker]) == ((worker,), ())
    assert owner.split([2**30]) == ((), (2**30,))
