"""The sampling thread, on the stub library and on this host as it is."""

import dataclasses
import os
import subprocess
import sys
import time

import nvml_stub
import pytest

from advisor import clock
from advisor.machine.gpu import read_gpus
from advisor.machine.recording import Sampler, merged, positions
from advisor.model import Card, Telemetry
from tests.support.processes import begun

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def watched() -> Telemetry:
    """What half a second of the stub's card comes to; our parent is a stranger on it."""
    with Sampler(os.getpid(), environ={}) as sampler:
        start = clock.now()
        time.sleep(1.5)
    return sampler.summary(start, clock.now())


def test_the_card_is_summed_up_from_library_to_telemetry(nvml) -> None:
    working = f"{nvml.pid}:80,{os.getpid()}:50"
    nvml.stub.write(
        nvml_stub.H100, power=600_000, events=0x4,
        processes=f"{nvml.pid}:1000,{os.getpid()}:-", working=working,
    )  # fmt: skip
    found = nvml.call(watched)
    assert found.gpu_util_pct == 97.0
    assert found.power_w == 600.0
    assert found.gpu_mem_used_gib == 12.0
    assert (found.busy_samples or 0) > 10
    assert dict(found.event_reasons) == {"software power cap": 1.0}
    assert found.foreign_pids == 1
    assert [field for field, _ in found.gaps] == ["energy_j"]  # two seconds are needed


def test_without_a_gpu_every_figure_has_the_reason() -> None:
    with Sampler(os.getpid(), environ=NO_GPU) as sampler:
        start = clock.now()
    found = sampler.summary(start, clock.now())
    figures = dataclasses.asdict(found)
    assert {value for name, value in figures.items() if name != "gaps"} == {None, ()}
    assert len({why for _, why in found.gaps}) == 1


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
print(child.pid, flush=True)
child.wait()
"""


def test_descendants_are_the_programs_own() -> None:
    """And stay so after their end, when the driver may still list them for a moment."""
    with begun(sys.executable, "-c", PARENT, stdin=subprocess.PIPE) as root:
        worker = int(root.stdout.readline())
        sampler = Sampler(root.pid, environ=NO_GPU)
        assert sampler.split([root.pid, worker, 1]) == ((root.pid, worker), ())
        assert Sampler(1_000_000, environ=NO_GPU).split([worker]) == ((), ())
        root.communicate()
    assert sampler.split([worker]) == ((worker,), ())
    assert sampler.split([2**30]) == ((), (2**30,))


@pytest.mark.gpu
def test_a_real_card_is_described_and_watched() -> None:
    """Whatever it withholds has a reason."""
    cards, note = read_gpus()
    if not cards:
        pytest.skip(str(note))
    assert cards[0].name
    assert cards[0].uuid
    assert cards[0].memory_total_gib
    with Sampler(os.getpid(), environ={}) as sampler:
        start = clock.now()
        time.sleep(2.5)
        end = clock.now()
    found = sampler.summary(start, end)
    missing = dict(found.gaps)
    for field in ("gpu_util_pct", "gpu_mem_used_gib", "power_w", "energy_j"):
        assert (getattr(found, field) is None) == (field in missing), field


A, B, SLICE = "GPU-aaaa-1", "GPU-bbbb-2", "MIG-dddd-4"


@pytest.mark.parametrize(
    ("uuids", "used", "expected"),
    [
        ([A, B], [Card(index=0, uuid="bbbb-2")], [1]),
        ([A, B], [Card(index=1, uuid="BBBB-2"), Card(index=1, uuid="bbbb-2")], [1]),
        ([A, B], [Card(index=0, uuid="bbbb-2"), Card(index=1, uuid="aaaa-1")], [1, 0]),
        ([A, SLICE], [Card(index=0, uuid="dddd-4")], [1]),
        ([A, B], [Card(index=0, uuid="eeee-5")], []),
        ([A, B], [Card(index=1)], [1]),
        ([None], [Card(index=0, uuid="eeee-5")], [0]),
        ([A], [], []),
    ],
    ids=["uuid", "twice", "two", "mig", "hidden", "number", "wsl", "cpu"],
)
def test_the_cards_in_use(uuids, used, expected) -> None:
    """By UUID, or by number where torch or the driver tells none."""
    assert positions(uuids, used) == expected


def test_several_cards_add_up() -> None:
    """Power and energy are sums; what one card withholds is not told of all."""
    one = Telemetry(gpu_util_pct=90.0, power_w=300.0, energy_j=600.0)
    two = Telemetry(gpu_util_pct=50.0, power_w=200.0)
    both = merged([one, two])
    assert both.gpu_util_pct == 70.0
    assert both.power_w == 500.0
    assert both.energy_j is None
    assert merged([one]) == one
