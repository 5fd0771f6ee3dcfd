"""Usable CPUs, memory and shared memory of the host.

What a machine has is not what a program may use. Containers and schedulers give a part of it,
by affinity, by a quota of a cgroup, or by a promise that is only in the environment; the smallest
of these holds. A program that counts all CPUs starts workers that wait for each other.
"""

import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from advisor.machine.gpu import read_gpus
from advisor.machine.readings import GIB
from advisor.model import Machine

ROOT = Path("/")
UNLIMITED = 2**62
"""Bytes from which a memory limit is none: 4 EiB, more than any machine has.

Source: `PAGE_COUNTER_MAX` of Linux's include/linux/page_counter.h: version 1 of cgroups shows it
for no limit. In bytes it is the largest multiple of a page below 2**63."""


def read_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Read host facts of a program under `environ`."""
    gpus, gpu_note = read_gpus(environ)
    ram = psutil.virtual_memory().total
    limits = (ram, memory_limit_bytes(), slurm_memory_bytes(environ))
    return Machine(
        cpu_model=cpu_model(),
        cpus=usable_cpus(environ),
        ram_gib=ram / GIB,
        ram_limit_gib=min(filter(None, limits)) / GIB,
        os=os_name(),
        python=platform.python_version(),
        gpus=gpus,
        gpu_note=gpu_note,
        allocation="slurm" if "SLURM_JOB_ID" in environ else None,
    )


def usable_cpus(environ: Mapping[str, str], root: Path = ROOT) -> int:
    """Usable CPUs by affinity, cgroup quota and Slurm."""
    given = (_count(environ, f"SLURM_CPUS_{name}") for name in ("PER_TASK", "ON_NODE"))
    limits = (len(os.sched_getaffinity(0)), math.ceil(cpu_quota(root) or 0), *given)
    return min(filter(None, limits))


def slurm_memory_bytes(environ: Mapping[str, str]) -> int | None:
    """Memory a Slurm job asked for on this node; None: all."""
    of_node = _count(environ, "SLURM_MEM_PER_NODE")
    of_cpus = _count(environ, "SLURM_MEM_PER_CPU") * _count(environ, "SLURM_CPUS_ON_NODE")
    return (of_node or of_cpus) << 20 or None


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def cpu_quota(root: Path = ROOT) -> float | None:
    """Tightest CPU quota of our cgroups, or None."""
    quotas = []
    for folder in cgroup_folders(root, "cpu"):
        quota, period = [*text_of(folder / "cpu.max").split(), "", ""][:2]
        quota = quota or text_of(folder / "cpu.cfs_quota_us")
        period = period or text_of(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """Tightest memory limit of our cgroups, or None."""
    limits = (_memory_limit(folder) for folder in cgroup_folders(root, "memory"))
    return min((limit for limit in limits if limit is not None), default=None)


def _memory_limit(folder: Path) -> int | None:
    text = text_of(folder / "memory.max") or text_of(folder / "memory.limit_in_bytes")
    return int(text) if text.isdecimal() and int(text) < UNLIMITED else None


def memory_room_bytes(root: Path = ROOT) -> int | None:
    """Free memory below the tightest limit, or None without a limit.

    Cached files count as free: a cgroup's use includes them, and the kernel drops those that were
    not used lately before it lets a program run out.
    """
    room = []
    for folder in cgroup_folders(root, "memory"):
        limit = _memory_limit(folder)
        used = text_of(folder / "memory.current") or text_of(
            folder / "memory.usage_in_bytes"
        )
        if limit is not None and used.isdecimal():
            kept = dict(
                line.split() for line in text_of(folder / "memory.stat").splitlines()
            )
            cached = kept.get("inactive_file") or kept.get("total_inactive_file") or "0"
            room.append(limit - int(used) + int(cached))
    return min(room, default=None)


def cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Limiting cgroup folders, nearest first.

    In a container the path of /proc/self/cgroup may be the host's: what is missing is
    passed over, and the mount is the container's own group.
    """
    mount = root / "sys/fs/cgroup"
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = mount / controllers
        if controllers and not base.is_dir():
            base = mount / controller
        folder = base / path.lstrip("/")
        while folder.is_relative_to(base):
            if folder.is_dir():
                yield folder
            folder = folder.parent


def text_of(path: Path) -> str:
    """Read a kernel file; empty if unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def nvidia_devices(root: Path = ROOT) -> int | None:
    """Count NVIDIA cards on the PCI bus, or None."""
    try:
        devices = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(  # display and 3D controllers: a card has a sound device, too
        text_of(device / "vendor") == "0x10de"
        and text_of(device / "class").startswith("0x03")
        for device in devices
    )


def cpu_model() -> str:
    """Marketing name of the CPU, else the architecture."""
    for line in text_of(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.machine()


def os_name() -> str:
    """`Debian GNU/Linux 12 (bookworm), Linux 6.1.0`."""
    kernel = f"{platform.system()} {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except OSError:
        return kernel
