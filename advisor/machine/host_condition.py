"""Host condition: clocks and memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.machine import host
from advisor.machine.readings import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """Clock governor of the usable CPUs."""

    names: tuple[str, ...]
    driver: str = ""
    preference: str = ""
    """Energy against performance, where the hardware chooses the clocks by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCondition:
    """Host condition; unavailable values are None."""

    cpus: int
    """CPUs that a program may really use."""
    cpus_shown: int
    """CPUs that a program which does not know of quotas believes it has."""
    governor: Governor | None = None
    ram_gib: float | None = None
    """The smaller of RAM and the cgroup's limit."""
    ram_left_gib: float | None = None
    shm_gib: float | None = None
    shm_left_gib: float | None = None
    container: bool = False


def read_host_condition(environ: Mapping[str, str], root: Path = ROOT) -> HostCondition:
    """Read the host condition of a program under `environ`."""
    memory = {key: value / 2**20 for key, value in _table(root / "proc/meminfo").items()}  # KiB
    limit, room = host.memory_limit_bytes(root), host.memory_room_bytes(root)
    shm, shm_left = _shared_memory(root)
    return HostCondition(
        cpus=host.usable_cpus(environ, root),
        cpus_shown=len(host.affinity()),
        governor=read_governor(root),
        ram_gib=_smaller(memory.get("MemTotal"), None if limit is None else limit / GIB),
        ram_left_gib=_smaller(memory.get("MemAvailable"), None if room is None else room / GIB),
        shm_gib=shm,
        shm_left_gib=shm_left,
        container=any((root / each).exists() for each in (".dockerenv", "run/.containerenv")),
    )


def read_governor(root: Path = ROOT) -> Governor | None:
    """Read the clock governor, or None."""
    folders = [
        root / f"sys/devices/system/cpu/cpu{number}/cpufreq" for number in sorted(host.affinity())
    ]
    names = {name for each in folders if (name := host.text_of(each / "scaling_governor"))}
    if not names:
        return None
    return Governor(
        names=tuple(sorted(names)),
        driver=host.text_of(folders[0] / "scaling_driver"),
        preference=host.text_of(folders[0] / "energy_performance_preference"),
    )


def _shared_memory(root: Path) -> tuple[float | None, float | None]:
    """GiB of /dev/shm, and what is left of them."""
    try:
        shm = os.statvfs(root / "dev/shm")
    except OSError:
        return None, None
    return shm.f_frsize * shm.f_blocks / GIB, shm.f_frsize * shm.f_bavail / GIB


def _table(path: Path) -> dict[str, int]:
    """Parse the kernel's `key: number unit` lines."""
    pairs = [line.replace(":", " ").split() for line in host.text_of(path).splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdecimal()}


def _smaller(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
