"""What loader workers cost their host: CPU time, memory, and room in /dev/shm.

Read from /proc of Linux; None where it does not tell.
"""

from __future__ import annotations

import os
from typing import Sequence

from .clocks import process_time

GIB = 1024.0**3
SHM = "/dev/shm"  # noqa: S108  only its free room is read


def cpu_s(pids: Sequence[int]) -> float | None:
    """CPU seconds so far of this process and of `pids`."""
    total = process_time()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def own_gib(pids: Sequence[int]) -> float | None:
    """Most memory that one of `pids` shares with no other process."""
    private_gib = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
                lines = [line.split() for line in file if line.startswith("Private_")]
        except OSError:
            return None
        private_gib.append(sum(int(words[1]) for words in lines) * 1024 / GIB)
    return max(private_gib) if private_gib else None


def free_shm_gib() -> float | None:
    """Free room of /dev/shm, through which workers send their batches."""
    try:
        room = os.statvfs(SHM)
    except (AttributeError, OSError):
        return None
    return room.f_bavail * room.f_frsize / GIB


def less(one: float | None, other: float | None) -> float | None:
    """`one` less `other`, at least zero; None where either is not known."""
    return None if one is None or other is None else max(0.0, one - other)
