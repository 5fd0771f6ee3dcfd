"""Host memory, CPU time and out-of-memory kills."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import psutil

from advisor.machine.host import cgroup_folders
from advisor.machine.readings import GIB
from advisor.runner.launch import START

FEWEST_READINGS = 20
LEAST_GROWTH_S = 40.0
"""Samples and time that a growth of memory is judged by."""
LIGHT = 0.02
"""Largest share of time spent sampling: reading PSS stops the process for a moment."""


class CpuReading(NamedTuple):
    time: float
    """Epoch seconds."""
    cpu_s: float
    """CPU seconds of the tree so far, ended processes included."""


class MemoryReading(NamedTuple):
    time: float
    """Epoch seconds."""
    gib: float
    """Memory of all processes of the tree, shared pages once."""


class TreeSampler:
    """Sampler of a process tree, at a limited rate."""

    def __init__(self, root: int, interval_s: float = 0.5) -> None:
        self._root = root
        self._interval_s = interval_s
        self._due = 0.0
        self.memory: list[MemoryReading] = []
        self.oldest_python: float | None = None
        """Epoch seconds at which the oldest living Python of the command was started."""
        self._cpu: deque[CpuReading] = deque(maxlen=256)

    def sample(self) -> bool:
        """Sample if due; return True if a sample was taken."""
        begun = time.monotonic()
        if begun < self._due:
            return False
        memory = cpu_s = 0.0
        try:
            root = psutil.Process(self._root)
            tree = [root, *root.children(recursive=True)]
        except psutil.Error:
            return False
        pythons = []
        for process in tree:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s += times.user + times.system
                # a child's time moves here once it was waited for
                cpu_s += getattr(times, "children_user", 0.0)
                cpu_s += getattr(times, "children_system", 0.0)
                if process.pid == self._root:
                    continue
                memory += _memory(process)
                if process.name().startswith("python") and START not in process.cmdline():
                    pythons.append(process.create_time())
        self.oldest_python = min(pythons, default=None)
        if memory:
            self.memory.append(MemoryReading(time=time.time(), gib=memory / GIB))
        self._cpu.append(CpuReading(time=time.time(), cpu_s=cpu_s))
        cost = time.monotonic() - begun
        self._due = begun + max(self._interval_s, cost / LIGHT)
        return True

    @property
    def peak_gib(self) -> float | None:
        """Highest memory seen; None before the first sample."""
        return max((reading.gib for reading in self.memory), default=None)

    def growth_gib_per_min(self) -> float | None:
        """Growth of memory after the first third of the samples; None of less than a minute."""
        later = self.memory[len(self.memory) // 3 :]
        if len(later) < FEWEST_READINGS or later[-1].time - later[0].time < LEAST_GROWTH_S:
            return None
        tenth = max(1, len(later) // 10)
        first, last = later[:tenth], later[-tenth:]
        minutes = (
            statistics.fmean(r.time for r in last) - statistics.fmean(r.time for r in first)
        ) / 60
        return (
            statistics.median(r.gib for r in last) - statistics.median(r.gib for r in first)
        ) / minutes

    def busy_cpus(self, start: float, end: float) -> float | None:
        """Mean CPUs used between two epoch times."""
        inside = [reading for reading in self._cpu if start <= reading.time <= end]
        if len(inside) < 2:
            return None
        first, last = inside[0], inside[-1]
        return max(0.0, (last.cpu_s - first.cpu_s) / (last.time - first.time))


def _memory(process: psutil.Process) -> float:
    """Proportional memory (PSS), or RSS where PSS is missing."""
    with contextlib.suppress(psutil.AccessDenied, AttributeError):
        return float(process.memory_full_info().pss)
    return float(process.memory_info().rss)


# --- out-of-memory kills ------------------------------------------------------------------


class OomKills(NamedTuple):
    """Out-of-memory kills that the kernel counted."""

    cgroup: int = 0
    host: int = 0

    def since(self, before: OomKills) -> OomKills:
        """Kills since an earlier count."""
        return OomKills(self.cgroup - before.cgroup, self.host - before.host)


def oom_kills(root: Path = Path("/")) -> OomKills:
    """Read the counters of the nearest cgroup and of the host."""
    nearest = list(cgroup_folders(root, "memory"))[:1]
    names = ("memory.events", "memory.oom_control")
    return OomKills(
        cgroup=sum(_kills(folder / name) for folder in nearest for name in names),
        host=_kills(root / "proc/vmstat"),
    )


def _kills(path: Path) -> int:
    with contextlib.suppress(OSError):
        count = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
        return int(count[1]) if count else 0
    return 0
