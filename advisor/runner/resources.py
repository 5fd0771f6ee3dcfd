"""Host memory, CPU time and out-of-memory kills."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import psutil

from advisor.machine.readings import GIB

LIGHT = 0.02
"""Largest share of time spent sampling: reading PSS stops the process for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    time: float
    """Epoch seconds."""
    cpu_s: float
    """CPU seconds of the tree so far, ended processes included."""


class TreeSampler:
    """Sampler of a process tree, at a limited rate."""

    def __init__(self, root: int, interval_s: float = 0.5) -> None:
        self._root = root
        self._interval_s = interval_s
        self._due = 0.0
        self.peak_gib: float | None = None
        self.tree: list[psutil.Process] = []
        """As of the latest sample, the root first."""
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
        self.tree = tree
        for process in tree:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s += times.user + times.system
                # a child's time moves here once it was waited for
                cpu_s += getattr(times, "children_user", 0.0)
                cpu_s += getattr(times, "children_system", 0.0)
                if process.pid != self._root:
                    memory += _memory(process)
        if memory:
            self.peak_gib = max(self.peak_gib or 0.0, memory / GIB)
        self._cpu.append(CpuReading(time=time.time(), cpu_s=cpu_s))
        cost = time.monotonic() - begun
        self._due = begun + max(self._interval_s, cost / LIGHT)
        return True

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OomCounter:
    """Kernel counter of out-of-memory kills in one file."""

    path: str
    scope: str
    """`this cgroup` or `this host`."""
    kills: int


def oom_counters(
    proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> tuple[OomCounter, ...]:
    """Readable out-of-memory counters, nearest first."""
    places = []
    with contextlib.suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            group = group.lstrip("/")
            if not controllers:
                places += [cgroups / group / "memory.events", cgroups / "memory.events"]
            elif "memory" in controllers.split(","):
                root = cgroups / "memory"
                places += [root / group / "memory.oom_control", root / "memory.oom_control"]
    counters = [
        OomCounter(path=str(place), scope="this cgroup", kills=kills)
        for place in dict.fromkeys(places)
        if (kills := _oom_kills(place)) is not None
    ]
    kills = _oom_kills(proc / "vmstat")
    if kills is not None:
        counters.append(OomCounter(path=str(proc / "vmstat"), scope="this host", kills=kills))
    return tuple(counters)


def new_kills(before: tuple[OomCounter, ...], after: tuple[OomCounter, ...]) -> OomCounter | None:
    """Nearest counter with new kills, and their number."""
    known = {counter.path: counter.kills for counter in before}
    for counter in after:
        grown = counter.kills - known.get(counter.path, counter.kills)
        if grown > 0:
            return OomCounter(path=counter.path, scope=counter.scope, kills=grown)
    return None


def _oom_kills(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
        return int(found[1]) if found else None
    return None
