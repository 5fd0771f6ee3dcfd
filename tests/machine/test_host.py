"""CPUs and memory that may really be used, from cgroup trees as kernels lay them out."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from advisor.machine import host
from advisor.machine.readings import GIB
from tests.support.processes import ran

UNLIMITED_V1 = 9_223_372_036_854_771_712


def write(root: Path, path: str, text: str) -> None:
    """Write `path`, as it is below `/`, under `root`."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_version_2_takes_the_tightest_limit_from_our_group_upwards(tmp_path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/user.slice/job\n")
    write(tmp_path, "sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/user.slice/job/memory.max", f"{8 * GIB}\n")
    write(tmp_path, "sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n")
    write(tmp_path, "sys/fs/cgroup/user.slice/memory.max", "max\n")
    assert host.cpu_quota(tmp_path) == 1.5
    assert host.memory_limit_bytes(tmp_path) == 8 * GIB


def test_inside_a_container_the_mount_is_our_group(tmp_path) -> None:
    """The path may be `/`, or the host's, which does not exist here."""
    for path in ("/", "/docker/0123abcd", "/../../system.slice/x"):
        write(tmp_path, "proc/self/cgroup", f"0::{path}\n")
        write(tmp_path, "sys/fs/cgroup/cpu.max", "400000 100000\n")
        write(tmp_path, "sys/fs/cgroup/memory.max", f"{16 * GIB}\n")
        assert host.cpu_quota(tmp_path) == 4.0
        assert host.memory_limit_bytes(tmp_path) == 16 * GIB


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
@pytest.mark.parametrize("group", ["", "docker/0123abcd/"])
def test_version_1_has_a_tree_a_controller(tmp_path, mount, group) -> None:
    lines = "11:memory:/docker/0123abcd\n4:cpu,cpuacct:/docker/0123abcd\n0::/\n"
    write(tmp_path, "proc/self/cgroup", lines)
    write(tmp_path, f"sys/fs/cgroup/{mount}/{group}cpu.cfs_quota_us", "250000\n")
    write(tmp_path, f"sys/fs/cgroup/{mount}/{group}cpu.cfs_period_us", "100000\n")
    write(tmp_path, f"sys/fs/cgroup/memory/{group}memory.limit_in_bytes", f"{4 * GIB}\n")
    assert host.cpu_quota(tmp_path) == 2.5
    assert host.memory_limit_bytes(tmp_path) == 4 * GIB


def test_no_limit_is_none(tmp_path) -> None:
    assert host.cpu_quota(tmp_path) is None
    assert host.memory_limit_bytes(tmp_path) is None
    write(tmp_path, "proc/self/cgroup", "2:memory:/\n1:cpu:/\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{UNLIMITED_V1}\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert host.cpu_quota(tmp_path) is None
    assert host.memory_limit_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "slurm", "expected"),
    [
        ("50000 100000", "", 1),
        ("110000 100000", "", 2),
        ("10000000 100000", "1", 1),
        ("max 100000", "0", None),
        ("max 100000", "four", None),
        ("max 100000", "4096", None),
    ],
)
def test_usable_cpus_are_the_smallest_limit(tmp_path, quota, slurm, expected) -> None:
    """A started CPU counts; what sets no limit changes nothing; None: the affinity."""
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", quota)
    found = host.usable_cpus({"SLURM_CPUS_PER_TASK": slurm}, tmp_path)
    bound = len(os.sched_getaffinity(0))
    assert found == (bound if expected is None else min(bound, expected))


def test_affinity_limits_the_cpus(root, tmp_path) -> None:
    """taskset and Slurm bind a process to fewer CPUs than the host has."""
    code = (
        "import os, pathlib; from advisor.machine import host\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        f"print(host.usable_cpus({{}}, pathlib.Path({str(tmp_path)!r})))"
    )
    assert ran(sys.executable, "-c", code, cwd=root, check=True).stdout == "1\n"


def test_this_host_is_read_whole() -> None:
    """With the GPUs hidden, the note says why there is none."""
    machine = host.read_machine({"CUDA_VISIBLE_DEVICES": ""})
    assert 1 <= machine.cpus <= (os.cpu_count() or 1)
    assert machine.ram_gib == pytest.approx(psutil.virtual_memory().total / GIB)
    assert 0 < machine.ram_limit_gib <= machine.ram_gib
    assert machine.gpus == ()
    assert machine.gpu_note
    assert machine.os
    assert len(machine.key) == 16


def test_cards_on_the_bus_are_counted_without_a_driver(tmp_path) -> None:
    """Its sound devices and other makers' cards are none."""
    assert host.nvidia_devices(tmp_path) is None
    for name, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030200"),
        ("0000:01:00.1", "0x10de", "0x040300"),
        ("0000:02:00.0", "0x1002", "0x030000"),
    ):
        write(tmp_path, f"sys/bus/pci/devices/{name}/vendor", f"{vendor}\n")
        write(tmp_path, f"sys/bus/pci/devices/{name}/class", f"{kind}\n")
    assert host.nvidia_devices(tmp_path) == 1


def test_a_slurm_job_has_the_memory_that_it_asked_for() -> None:
    """In MiB of the node or of each CPU; `--mem=0` asks for all of it."""
    of_node, of_cpus = {"SLURM_MEM_PER_NODE": "1000"}, {"SLURM_MEM_PER_CPU": "500"}
    assert host.slurm_memory_bytes(of_node) == 1000 << 20
    assert host.slurm_memory_bytes({**of_cpus, "SLURM_CPUS_ON_NODE": "2"}) == 1000 << 20
    assert host.slurm_memory_bytes({"SLURM_MEM_PER_NODE": "0"}) is None
    assert host.slurm_memory_bytes({}) is None
