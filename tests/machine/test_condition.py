"""State of cards and host: real files, fake trees, and a scripted driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvml_stub import H100

from advisor.machine import host
from advisor.machine.condition import CardCondition, nvidia_devices, read_conditions
from advisor.machine.host_condition import read_governor, read_host_condition
from advisor.machine.readings import GIB
from tests.machine.trees import write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.machine.conftest import StubProcess


def conditions() -> tuple[CardCondition, ...]:
    return read_conditions({})[0]


def test_a_card_tells_its_state(nvml: StubProcess) -> None:
    nvml.stub.write(H100, {"pcie.gen": 1})
    (card,) = nvml.call(conditions)
    assert (card.cuda_driver, card.power_default_w) == ("12.6", 700.0)
    assert (card.pcie_generation, card.pcie_generation_max) == (1, 5)
    assert (card.pcie_width, card.pcie_width_max) == (16, 16)
    assert card.sm_clock_max_mhz == 1980.0
    assert card.now.power_w == 650.0


def test_a_value_that_a_driver_withholds_is_none(nvml: StubProcess) -> None:
    nvml.stub.write({"count": 1})
    (card,) = nvml.call(conditions)
    assert {card.power_default_w, card.pcie_width} == {None}


def test_cards_on_the_bus_are_counted_without_a_driver(tmp_path: Path) -> None:
    """Display and 3D controllers of NVIDIA; its sound devices and other makers' cards are none."""
    assert nvidia_devices(tmp_path) is None
    for name, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030200"),
        ("0000:01:00.1", "0x10de", "0x040300"),
        ("0000:02:00.0", "0x1002", "0x030000"),
    ):
        write(tmp_path, f"sys/bus/pci/devices/{name}/vendor", f"{vendor}\n")
        write(tmp_path, f"sys/bus/pci/devices/{name}/class", f"{kind}\n")
    assert nvidia_devices(tmp_path) == 1


def test_a_host_is_read_as_its_cgroup_has_it(tmp_path: Path) -> None:
    """Of memory, what the group may still take; cached files count as room."""
    write(tmp_path, "proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n")
    write(tmp_path, "proc/self/cgroup", "0::/job\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.max", f"{8 * GIB}\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.current", f"{7 * GIB}\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.stat", f"anon 1\ninactive_file {2 * GIB}\n")
    found = read_host_condition({}, tmp_path)
    assert (found.ram_gib, found.ram_left_gib) == (8.0, 3.0)
    assert (found.shm_gib, found.governor) == (None, None)


def test_a_host_that_tells_nonsense_is_not_believed(tmp_path: Path) -> None:
    for path in ("meminfo", "self/cgroup"):
        write(tmp_path, f"proc/{path}", "odd\n\x00 a:b\nMemTotal: many kB\n::\n")
    found = read_host_condition({}, tmp_path)
    assert (found.ram_gib, found.ram_left_gib) == (None, None)
    assert found.cpus >= 1


def test_the_governor_is_that_of_the_cpus_we_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "affinity", lambda: {1})
    for number, name in ((0, "powersave"), (1, "performance")):
        folder = f"sys/devices/system/cpu/cpu{number}/cpufreq"
        write(tmp_path, f"{folder}/scaling_governor", f"{name}\n")
        write(tmp_path, f"{folder}/scaling_driver", "acpi-cpufreq\n")
    found = read_governor(tmp_path)
    assert found is not None
    assert (found.names, found.driver, found.preference) == (("performance",), "acpi-cpufreq", "")
