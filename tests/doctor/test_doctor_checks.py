"""The table of checks over readings of other machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.commands.doctor.checks import Readings, Row, checked, verdict
from advisor.commands.doctor.command import as_json, as_text
from advisor.commands.doctor.interpreter import TorchFacts
from advisor.machine.condition import CardCondition
from advisor.machine.host_condition import Governor, HostCondition
from advisor.machine.readings import GpuProcess, GpuSample
from advisor.model import Disturbance, Gpu, Neighbour
from advisor.sandbox.capabilities import Capability

H100 = CardCondition(
    gpu=Gpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        uuid="GPU-1",
        memory_total_gib=79.6,
        memory_free_gib=79.0,
        driver="560.35.03",
        compute_capability="9.0",
        power_limit_w=700.0,
        profile="h100-sxm",
        mig=False,
    ),
    now=GpuSample(
        util_pct=97.0, sm_clock_mhz=1980.0, event_reasons=0, processes=(), working_pids=()
    ),
    cuda_driver="12.6",
    power_default_w=700.0,
    sm_clock_max_mhz=1980.0,
    pcie_generation=5,
    pcie_generation_max=5,
    pcie_width=16,
    pcie_width_max=16,
)
"""A card at work to which nothing is to be done."""
TORCH = TorchFacts(
    python="3.11.7",
    executable="/env/bin/python",
    torch="2.9.1+cu126",
    cuda="12.6",
    available=True,
    threads=8,
)
WELL = Readings(
    host=HostCondition(
        cpus=16,
        cpus_shown=16,
        governor=Governor(names=("performance",), driver="acpi-cpufreq"),
        ram_gib=128.0,
        ram_left_gib=100.0,
        shm_gib=64.0,
        shm_left_gib=64.0,
    ),
    environ={},
    cards=(H100,),
    nvidia_devices=1,
    isolation=Capability(kind="overlay"),
    crowd=Disturbance(disturbed=False, others_cpus=0.1),
    torch=TORCH,
)
"""A machine that costs nothing."""
GUARD = Capability(kind="guard", refused=(("overlay", "EPERM"),))
CROWD = Disturbance(disturbed=True, others_cpus=6.0, who=(Neighbour(name="ffmpeg", cpus=6.0),))
SMALL_SHM = {"shm_gib": 0.0625, "shm_left_gib": 0.0625}
SPARING = Governor(names=("powersave",), driver="intel_pstate", preference="power")
STRANGER = {"processes": (GpuProcess(pid=4711, memory_gib=1.0),), "working_pids": (4711,)}


def to_fix(readings: Readings) -> list[Row]:
    """Rows that are not good."""
    return [row for row in checked(readings) if row.status == "fix"]


def card(**changes: Any) -> Readings:
    return replace(WELL, cards=(replace(H100, **changes),))


def gpu(**changes: Any) -> Readings:
    return card(gpu=replace(H100.gpu, **changes))


def sample(**changes: Any) -> Readings:
    return card(now=replace(H100.now, **changes))


def host(**changes: Any) -> Readings:
    return replace(WELL, host=replace(WELL.host, **changes))


def torch(**changes: Any) -> Readings:
    return replace(WELL, torch=TORCH.model_copy(update=changes))


def no_cards(note: str, devices: int = 1) -> Readings:
    return replace(WELL, cards=(), no_cards=note, nvidia_devices=devices)


def test_a_well_kept_machine_has_nothing_to_fix() -> None:
    rows = checked(WELL)
    assert {row.status for row in rows} == {"good"}
    assert verdict(rows) == "Nothing to fix here."


GONE_WRONG: list[tuple[str, Readings, str, str]] = [
    ("GPU", no_cards("No NVIDIA driver is installed.", 2), "2 NVIDIA on the bus", "nvidia-smi"),
    ("GPU", no_cards("CUDA_VISIBLE_DEVICES='' hides it."), "hides", "unset CUDA_VISIBLE_DEVICES"),
    ("GPU", no_cards("pip install nvidia-ml-py"), "pip", "python -m pip install nvidia-ml-py"),
    ("GPU", replace(WELL, uvm_missing=True), "/dev/nvidia-uvm is missing", "nvidia-modprobe"),
    ("power limit", gpu(power_limit_w=350.0), "350 W, the card's own is 700 W", "-pl 700"),
    ("clocks", sample(event_reasons=0x40), "hardware thermal slowdown", "-q -d PERFORMANCE"),
    ("clocks", sample(event_reasons=0x2, sm_clock_mhz=1200.0), "1200 of 1980 MHz", "-rac"),
    ("PCIe link", card(pcie_width=8), "x8", "lspci"),
    ("PCIe link", card(pcie_width=8, pcie_width_max=8), "x8", "lspci"),
    ("PCIe link", card(pcie_generation=3), "generation 3 x16", "lspci"),
    ("other processes", sample(**STRANGER), "1 process, 1.0 GiB held, 1 at work", "-p 4711"),
    ("MIG", gpu(mig=True), "no slices", "-mig 0"),
    ("CPU governor", host(governor=Governor(names=("powersave",))), "powersave", "cpupower"),
    ("CPU governor", host(governor=SPARING), "power", "cpupower"),
    ("memory", host(ram_left_gib=3.0), "3.0 of 128.0 GiB left", "ps "),
    ("shared memory", host(**SMALL_SHM), "0.06 GiB", "remount"),
    ("shared memory", host(**SMALL_SHM, container=True), "0.06 GiB", "--shm-size"),
    ("other programs", replace(WELL, crowd=CROWD), "6.0 of 16 CPUs busy (ffmpeg 6.0)", "ps "),
    (
        "other programs",
        replace(WELL, crowd=CROWD, own_calls=("`gpu-advisor optimize`, process 7",)),
        "gpu-advisor itself measures meanwhile: `gpu-advisor optimize`, process 7",
        "when that call has ended",
    ),
    ("isolation", replace(WELL, isolation=GUARD), "overlay: EPERM", "sysctl"),
    ("torch", torch(cuda=None, available=False), "the GPU is not used", "whl/cu126"),
    ("torch", torch(cuda="13.0", available=False, warned=("too old",)), "too old", "whl/cu126"),
    ("torch", torch(cuda="11.8", available=False), "it sees no GPU", "nvidia-smi"),
    ("threads", torch(threads=64), "64 in a call", "OMP_NUM_THREADS=16"),
    (
        "threads",
        torch(settings={"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "4"}),
        "MKL_NUM_THREADS=4",
        "export OMP_NUM_THREADS=4 MKL_NUM_THREADS=4",
    ),
    ("threads", replace(torch(threads=1), cards=(), nvidia_devices=0), "1 in a call", "export"),
]


@pytest.mark.parametrize(
    ("name", "readings", "value", "fix"), GONE_WRONG, ids=[f"{n}-{v}" for n, _, v, _ in GONE_WRONG]
)
def test_each_fault_is_one_row_with_its_value_and_remedy(
    name: str, readings: Readings, value: str, fix: str
) -> None:
    (row,) = to_fix(readings)
    assert row.name == name
    assert value in row.value
    assert fix in (row.fix or "")


@pytest.mark.parametrize(
    "readings",
    [
        # the link of an idle card sleeps, and wakes under load
        card(pcie_generation=1, now=replace(H100.now, util_pct=0.0, event_reasons=0x1)),
        # an H100 in a host of the generation before
        card(pcie_generation=4, pcie_generation_max=4),
        # a power cap is the normal state of a busy card
        sample(event_reasons=0x4),
        # a desktop that holds little and does nothing
        sample(processes=(GpuProcess(pid=9, memory_gib=0.4),)),
        host(governor=replace(SPARING, preference="balance_performance")),
        replace(WELL, isolation=replace(GUARD, kind="landlock")),
        # a program with a GPU computes there
        torch(threads=1),
        no_cards("No NVIDIA driver is installed.", 0),
    ],
)
def test_a_normal_state_is_no_fault(readings: Readings) -> None:
    assert to_fix(readings) == []


def test_an_unreadable_value_is_neither_good_nor_to_fix() -> None:
    """A driver or a container that withholds a value is not blamed for it."""
    silent = Readings(
        host=HostCondition(cpus=4, cpus_shown=4),
        environ={},
        cards=(
            CardCondition(gpu=replace(H100.gpu, power_limit_w=None, mig=None), now=GpuSample()),
        ),
        crowd=Disturbance(),
        torch="python3 could not be started: Permission denied",
    )
    rows = checked(silent)
    assert to_fix(silent) == []
    assert {row.status for row in rows if row.area == "GPU 0"} == {"unknown"}
    assert f"of {len(rows)} checks could not be told" in verdict(rows)
    assert "Permission denied" in as_text(rows)


def test_the_verdict_leads_both_outputs() -> None:
    rows = checked(replace(gpu(power_limit_w=350.0), isolation=GUARD))
    assert verdict(rows) == "2 things to fix here."
    assert as_text(rows).startswith(verdict(rows))
    assert f'"verdict": "{verdict(rows)}"' in as_json(rows)
