"""What processes used and waited for, by the kernel's own counters: /proc, read in few calls."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One line of /proc/PID/stat."""

    pid: int
    name: str
    """Its command name, 15 bytes of it."""
    parent: int
    cpu_s: float
    """All its threads since it began, those that ended included."""
    children_s: float
    """Its children that ended and were waited for, with theirs."""


def read_stat(pid: int) -> ProcessStat | None:
    """None where there is no such process, or no /proc."""
    text = read(f"/proc/{pid}/stat")
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 1 :].split()
    if opening < 0 or len(fields) < 15:
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    return ProcessStat(
        pid=pid,
        name=text[opening + 1 : closing],
        parent=int(fields[1]),
        cpu_s=(user + system) / TICKS_PER_S,
        children_s=(children_user + children_system) / TICKS_PER_S,
    )


def read_all() -> dict[int, ProcessStat]:
    """Every process that can be seen; empty without /proc. Takes some 20 us a process."""
    try:
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    except OSError:
        return {}
    return {stat.pid: stat for pid in pids if (stat := read_stat(pid)) is not None}


def read(path: str) -> str:
    """Text of a file of /proc or /sys; empty where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        chunks = []
        while chunk := os.read(file, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks).decode("utf-8", errors="replace")
    except OSError:  # it ended meanwhile
        return ""
    finally:
        os.close(file)


class TreeClock:
    """CPU time and run-queue delay of a process and its descendants, from look to look.

    Threads are read one by one, to the nanosecond: a process' own clock ticks in hundredths,
    which is too coarse for a tenth of a second. What ended between two looks is only in the
    clocks of its process or parent, so these are taken where something ended.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._tasks: dict[tuple[int, int], tuple[int, int]] = {}
        self._processes_s: float | None = None
        self._ended_s = 0.0
        self.cpu_s = 0.0
        """Since the first look."""
        self.waited_s: float | None = None
        """Ready, but without a CPU, summed over threads; None where the kernel does not tell."""

    def look(self) -> None:
        """Read everything once more."""
        tasks: dict[tuple[int, int], tuple[int, int]] = {}
        processes_s = ended_s = 0.0
        pending, seen = [self._root], set()
        while pending:
            pid = pending.pop()
            stat = read_stat(pid)
            if stat is None or pid in seen:
                continue
            seen.add(pid)
            processes_s += stat.cpu_s + stat.children_s
            ended_s += stat.children_s
            for thread in _threads(pid):
                folder = f"/proc/{pid}/task/{thread}"
                pending += map(int, read(f"{folder}/children").split())
                ran, waited, *_ = [*read(f"{folder}/schedstat").split(), "", ""]
                if waited:
                    tasks[pid, thread] = int(ran), int(waited)
        if tasks and self.waited_s is None:
            self.waited_s = 0.0
        if self._processes_s is not None:
            self._add(tasks, processes_s - self._processes_s, ended=ended_s > self._ended_s)
        self._tasks, self._processes_s, self._ended_s = tasks, processes_s, ended_s

    def _add(
        self, tasks: dict[tuple[int, int], tuple[int, int]], processes_s: float, *, ended: bool
    ) -> None:
        ran = waited = 0
        for key, (ran_ns, waited_ns) in tasks.items():
            ran_before, waited_before = self._tasks.get(key, (0, 0))
            ran += max(0, ran_ns - ran_before)
            waited += max(0, waited_ns - waited_before)
        whole = bool(tasks) and self._tasks.keys() <= tasks.keys() and not ended
        self.cpu_s += ran / 1e9 if whole else max(ran / 1e9, processes_s)
        if self.waited_s is not None:
            self.waited_s += waited / 1e9


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    return []
