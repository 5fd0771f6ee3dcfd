"""Host memory, CPU time and out-of-memory kills."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from advisor.machine.host import cgroup_folders
from advisor.machine.readings import GIB

FEWEST_READINGS = 20
LEAST_GROWTH_S = 40.0
"""Samples and time that a growth of memory is judged by."""
INTERVAL_S = 0.5
LIGHT = 0.02
"""Largest share of time spent sampling: reading PSS stops the process for a moment."""


class Reading(NamedTuple):
    """Reading of the tree at an epoch time."""

    time: float
    value: float


class TreeSampler:
    """Sampler of a process tree, at a limited rate."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._due = 0.0
        self._memory: list[Reading] = []
        """GiB of all processes, shared pages once."""
        self._cpu: deque[Reading] = deque(maxlen=256)
        """CPU seconds so far, ended processes included."""

    def sample(self) -> None:
        """Sample if due."""
        begun = time.monotonic()
        if begun < self._due:
            return
        tree = []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._root)
            tree = [root, *root.children(recursive=True)]
        memory = cpu_s = 0.0
        for process in tree:
            with contextlib.suppress(psutil.Error):
                cpu_s += sum(process.cpu_times()[:4])  # with those of children that were waited for
                memory += 0.0 if process.pid == self._root else _memory(process)
        if memory:
            self._memory.append(Reading(time.time(), memory / GIB))
        if tree:
            self._cpu.append(Reading(time.time(), cpu_s))
        self._due = begun + max(INTERVAL_S, (time.monotonic() - begun) / LIGHT)

    @property
    def peak_gib(self) -> float | None:
        """Highest memory seen; None before the first sample."""
        return max((reading.value for reading in self._memory), default=None)

    def growth_gib_per_min(self) -> float | None:
        """Growth of memory after the first third of the samples; None of less than a minute."""
        later = self._memory[len(self._memory) // 3 :]
        if len(later) < FEWEST_READINGS or later[-1].time - later[0].time < LEAST_GROWTH_S:
            return None
        tenth = max(1, len(later) // 10)
        first, last = later[:tenth], later[-tenth:]
        grown_gib = median(r.value for r in last) - median(r.value for r in first)
        return 60.0 * grown_gib / (median(r.time for r in last) - median(r.time for r in first))

    def busy_cpus(self, start: float, end: float) -> float | None:
        """Mean CPUs used between two epoch times."""
        inside = [reading for reading in self._cpu if start <= reading.time <= end]
        if len(inside) < 2:
            return None
        first, last = inside[0], inside[-1]
        return max(0.0, (last.value - first.value) / (last.time - first.time))


def _memory(process: psutil.Process) -> float:
    """Proportional memory (PSS), or RSS where PSS is missing."""
    with contextlib.suppress(psutil.AccessDenied, AttributeError):
        return float(process.memory_full_info().pss)
    return float(process.memory_info().rss)


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
