"""The table of checks over readings of other machines: what is told, and what it says to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.commands.doctor.card_checks import CARD_CHECKS
from advisor.commands.doctor.command import as_json, as_text, checked
from advisor.commands.doctor.interpreter import TorchFacts
from advisor.commands.doctor.table import Readings, Row, examine, verdict
from advisor.machine.condition import CardCondition
from advisor.machine.host_condition import Governor, HostCondition, Limit
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
        power_limit_w=700.0,
        compute_capability="9.0",
        profile="h100-sxm",
        mig=False,
    ),
    now=GpuSample(
        util_pct=97.0,
        power_w=650.0,
        sm_clock_mhz=1980.0,
        temperature_c=61.0,
        event_reasons=0,
        processes=(),
        working_pids=(),
    ),
    cuda_driver="12.6",
    persistence=True,
    power_default_w=700.0,
    sm_clock_max_mhz=1980.0,
    pcie_generation=5,
    pcie_generation_max=5,
    pcie_width=16,
    pcie_width_max=16,
    ecc=True,
    ecc_errors=0,
)
"""A card at work to which nothing is to be done."""

TORCH = TorchFacts(
    python="3.11.7",
    executable="/env/bin/python",
    torch="2.9.1+cu126",
    cuda="12.6",
    available=True,
    devices=1,
    cudnn=91002,
    matmul_precision="highest",
    cudnn_tf32=True,
    threads=8,
    interop_threads=8,
)

WELL = Readings(
    host=HostCondition(
        cpus=16,
        cpus_shown=16,
        governor=Governor(names=("performance",), driver="acpi-cpufreq"),
        ram_gib=128.0,
        ram_left_gib=100.0,
        swap_gib=8.0,
        swap_used_gib=0.5,
        shm_gib=64.0,
        shm_left_gib=64.0,
        limits=(
            Limit(name="open files", soft=65536, hard=1048576),
            Limit(name="address space", soft=None, hard=None),
        ),
    ),
    environ={},
    cards=(H100,),
    nvidia_devices=1,
    isolation=Capability(kind="overlay"),
    crowd=Disturbance(disturbed=False, others_cpus=0.1, steal_share=0.0),
    swapped_pages=0,
    torch=TORCH,
)
"""A machine that costs nothing."""


def to_fix(readings: Readings) -> dict[str, str | None]:
    """Names of the checks that are not good, and their commands."""
    return {row.name: row.fix for row in checked(readings) if row.status == "fix"}


def row_of(readings: Readings, name: str) -> Row:
    return next(row for row in checked(readings) if row.name == name)


def card(**changes: Any) -> Readings:
    return replace(WELL, cards=(replace(H100, **changes),))


def host(**changes: Any) -> Readings:
    return replace(WELL, host=replace(WELL.host, **changes))


def torch(**changes: Any) -> Readings:
    return replace(WELL, torch=TORCH.model_copy(update=changes))


def test_a_well_kept_machine_has_nothing_to_fix() -> None:
    """Every check is good, and the verdict says that nothing costs speed."""
    rows = checked(WELL)
    assert {row.status for row in rows} == {"good"}
    assert verdict(rows) == "Nothing that was looked at costs you speed here."


def test_every_row_says_what_is_good_and_why_in_one_line() -> None:
    """A value, what is good there and why it matters; a command only where something is to fix."""
    for row in (*checked(WELL), *checked(card(persistence=False))):
        assert row.value
        assert row.good
        assert row.why
        assert "\n" not in row.value + row.good + row.why + (row.fix or "")
        assert (row.fix is not None) == (row.status == "fix")


GONE_WRONG: list[tuple[str, Readings, str, str]] = [
    ("persistence", card(persistence=False), "off", "nvidia-smi -i 0 -pm 1"),
    (
        "power limit",
        card(gpu=replace(H100.gpu, power_limit_w=350.0)),
        "350 W, the card's own is 700 W",
        "-pl 700",
    ),
    (
        "clocks",
        card(now=replace(H100.now, event_reasons=0x40, sm_clock_mhz=1200.0)),
        "hardware thermal slowdown",
        "-q -d PERFORMANCE",
    ),
    (
        "clocks",
        card(now=replace(H100.now, event_reasons=0x2, sm_clock_mhz=1200.0)),
        "1200 of 1980 MHz",
        "-rac",
    ),
    ("PCIe link", card(pcie_width=8), "x8", "lspci"),
    ("PCIe link", card(pcie_generation=3), "generation 3 x16", "lspci"),
    (
        "CUDA device files",
        replace(WELL, uvm_missing=True),
        "/dev/nvidia-uvm is missing",
        "nvidia-modprobe",
    ),
    ("ECC", card(ecc_errors=3), "3 uncorrected errors", "-q -d ECC"),
    (
        "other processes",
        card(
            now=replace(
                H100.now, processes=(GpuProcess(pid=4711, memory_gib=1.0),), working_pids=(4711,)
            )
        ),
        "1 process, 1.0 GiB held, 1 at work",
        "-p 4711",
    ),
    ("MIG", card(gpu=replace(H100.gpu, mig=True)), "no slices", "-mig 0"),
    ("CPU governor", host(governor=Governor(names=("powersave",))), "powersave", "cpupower"),
    (
        "CPU governor",
        host(
            governor=Governor(names=("powersave",), driver="intel_pstate", preference="power"),
        ),
        "power",
        "cpupower",
    ),
    ("memory", host(ram_left_gib=3.0), "3.0 of 128.0 GiB left", "ps "),
    ("swap", replace(WELL, swapped_pages=900), "900 pages read back", "ps "),
    ("/dev/shm", host(shm_gib=0.0625, shm_left_gib=0.0625), "0.06 GiB", "remount"),
    (
        "/dev/shm",
        host(shm_gib=0.0625, shm_left_gib=0.0625, container=True),
        "0.06 GiB",
        "--shm-size",
    ),
    (
        "limits",
        host(limits=(Limit(name="open files", soft=256, hard=4096),)),
        "256 open files",
        "ulimit -n 4096",
    ),
    (
        "limits",
        host(limits=(Limit(name="address space", soft=2**32, hard=None),)),
        "4294967296 address space",
        "ulimit -v unlimited",
    ),
    (
        "debug settings",
        replace(WELL, environ={"CUDA_LAUNCH_BLOCKING": "1"}),
        "every launch waits",
        "unset CUDA_LAUNCH_BLOCKING",
    ),
    (
        "other programs",
        replace(
            WELL,
            crowd=Disturbance(
                disturbed=True, others_cpus=6.0, who=(Neighbour(name="ffmpeg", cpus=6.0),)
            ),
        ),
        "6.0 of 16 CPUs busy (ffmpeg 6.0)",
        "ps ",
    ),
    (
        "stolen time",
        replace(WELL, crowd=Disturbance(disturbed=True, others_cpus=0.0, steal_share=0.2)),
        "20%",
        "vmstat",
    ),
    (
        "isolation",
        replace(WELL, isolation=Capability(kind="guard", refused=(("overlay", "EPERM"),))),
        "overlay: EPERM",
        "sysctl",
    ),
    ("CUDA", torch(cuda=None, available=False, devices=0), "built for CPUs", "whl/cu126"),
    (
        "CUDA",
        torch(cuda="13.0", available=False, warned=("The NVIDIA driver is too old",)),
        "The NVIDIA driver is too old",
        "whl/cu126",
    ),
    ("cuDNN", torch(cudnn=None), "none", "pip install"),
    (
        "TF32",
        replace(WELL, environ={"NVIDIA_TF32_OVERRIDE": "0"}),
        "forbids it",
        "unset NVIDIA_TF32_OVERRIDE",
    ),
    ("threads", torch(threads=64), "64 in a call", "OMP_NUM_THREADS=16"),
    (
        "OMP and MKL",
        torch(settings={"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "4"}),
        "MKL_NUM_THREADS=4",
        "export OMP_NUM_THREADS=4 MKL_NUM_THREADS=4",
    ),
]


@pytest.mark.parametrize(
    ("name", "readings", "value", "fix"), GONE_WRONG, ids=[f"{n}-{v}" for n, _, v, _ in GONE_WRONG]
)
def test_what_costs_something_is_told_with_its_value_and_a_command(
    name: str, readings: Readings, value: str, fix: str
) -> None:
    """One thing that is wrong is one line to fix, and no other line complains of it."""
    found = to_fix(readings)
    assert list(found) == [name]
    assert value in row_of(readings, name).value
    assert fix in (found[name] or "")


@pytest.mark.parametrize(
    "readings",
    [
        # the link of an idle card sleeps, and wakes under load
        card(pcie_generation=1, now=replace(H100.now, util_pct=0.0, event_reasons=0x1)),
        # an H100 in a host of the generation before
        card(pcie_generation=4, pcie_generation_max=4),
        # a power cap is the normal state of a busy card
        card(now=replace(H100.now, event_reasons=0x4)),
        # a desktop that holds little and does nothing
        card(now=replace(H100.now, processes=(GpuProcess(pid=9, memory_gib=0.4),))),
        # intel_pstate and its like choose clocks by themselves
        host(
            governor=Governor(
                names=("powersave",), driver="intel_pstate", preference="balance_performance"
            )
        ),
        # swap that was filled once and is left alone costs nothing
        host(swap_used_gib=7.9),
        replace(WELL, environ={"CUDA_LAUNCH_BLOCKING": "0"}),
        # what denies writes does not throw them away, and nothing is lost either
        replace(WELL, isolation=Capability(kind="landlock", refused=(("overlay", "EPERM"),))),
        # half as many threads as CPUs is one for each core
        torch(threads=8),
    ],
)
def test_what_only_looks_wrong_is_not_complained_of(readings: Readings) -> None:
    assert to_fix(readings) == {}


def test_what_cannot_be_told_is_neither_good_nor_to_fix() -> None:
    """A driver, a container or a hypervisor that says nothing is not blamed for it."""
    silent = Readings(
        host=HostCondition(cpus=4, cpus_shown=4),
        environ={},
        cards=(
            CardCondition(
                gpu=replace(H100.gpu, driver=None, power_limit_w=None, mig=None), now=GpuSample()
            ),
        ),
        crowd=Disturbance(),
        torch="python3 could not be started: Permission denied",
    )
    rows = checked(silent)
    assert to_fix(silent) == {}
    assert {row.status for row in rows if row.area == "GPU 0"} == {"unknown"}
    assert f"of {len(rows)} checks could not be told" in verdict(rows)
    assert "Permission denied" in as_text(rows)


def test_a_cpu_program_is_told_of_idle_cpus_and_a_gpu_program_is_not() -> None:
    """One thread on sixteen CPUs costs a program without a GPU; one with a GPU computes there."""
    alone = replace(torch(threads=1), cards=(), nvidia_devices=0)
    assert to_fix(alone) == {"threads": "export OMP_NUM_THREADS=16"}
    assert to_fix(torch(threads=1)) == {}


@pytest.mark.parametrize(
    ("note", "devices", "environ", "fix"),
    [
        ("No NVIDIA driver is installed on this host.", 0, {}, None),
        ("No NVIDIA driver is installed on this host.", 2, {}, "nvidia-smi"),
        (
            "CUDA_VISIBLE_DEVICES='' hides the 1 GPU of this host.",
            1,
            {"CUDA_VISIBLE_DEVICES": ""},
            "unset CUDA_VISIBLE_DEVICES",
        ),
        (
            "The Python package nvidia-ml-py is not installed: pip install nvidia-ml-py.",
            1,
            {},
            "python -m pip install nvidia-ml-py",
        ),
    ],
)
def test_a_missing_gpu_is_a_fault_only_where_one_should_be(
    note: str, devices: int, environ: dict[str, str], fix: str | None
) -> None:
    readings = replace(WELL, cards=(), no_cards=note, nvidia_devices=devices, environ=environ)
    row = row_of(readings, "GPU")
    assert (row.fix or "").startswith(fix or "")
    assert (row.status == "fix") == (fix is not None)


def test_the_datasheet_counts_where_the_slot_allows_less() -> None:
    """Card and slot agree on x8: only the datasheet knows that the card has sixteen lanes."""
    half = replace(H100, pcie_width=8, pcie_width_max=8)
    (row,) = [row for row in examine("GPU 0", CARD_CHECKS, half) if row.name == "PCIe link"]
    assert row.status == "fix"
    assert row.good.startswith("generation 5 x16")
    unknown = replace(half, gpu=replace(H100.gpu, profile=None))
    (row,) = [row for row in examine("GPU 0", CARD_CHECKS, unknown) if row.name == "PCIe link"]
    assert row.status == "good"


def test_the_verdict_counts_speed_apart_from_measuring() -> None:
    """Two things that cost speed, and a missing isolation, which costs none."""
    readings = replace(
        card(persistence=False),
        swapped_pages=5,
        isolation=Capability(kind="guard", refused=(("overlay", "EPERM"),)),
    )
    told = verdict(checked(readings))
    assert told == "2 things cost you speed here; 1 makes measuring less safe or sure."
    assert as_text(checked(readings)).startswith(told)
    assert f'"verdict": "{told}"' in as_json(checked(readings))
    assert verdict(checked(card(persistence=False))) == "1 thing costs you speed here."
