"""Limits, host memory, CPU time and out-of-memory kills."""

import contextlib
import re
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from advisor import clock
from advisor.machine.contention import tree
from advisor.machine.host import cgroup_folders, text_of
from advisor.machine.readings import GIB
from advisor.model import MeasurePlan
from advisor.settings import Defaults, Workload

# Limits of a trial end what hangs, and must spare what is only slow. So each is a multiple of
# what was seen to be normal, and rather too long: a trial that is ended for nothing is lost, one
# that hangs costs no more than the limit. All by judgement; gpu-advisor.toml overrides the first
# three by start-limit, hang-limit and run-limit.
START_S = 300.0
"""Longest time to the first step, for a program whose original was not timed yet."""
HANG_S = 60.0
"""Longest time in seconds without a step, once there was one.

Judgement: shorter ends a program that validates or writes a checkpoint, longer makes each hang cost
more of the budget."""
LATE_START = 5.0
"""A candidate may take so many times the original's time to its first step.

Judgement: smaller ends candidates whose workers or compiler start slowly, larger waits long for one
that never steps."""
SLOW_WINDOW = 10.0
"""A window may take so many times the seconds asked for, where single steps are longer than it.

Judgement: smaller ends programs of long steps before they have enough, larger makes a program that
gets slower and slower cost more."""
SILENCES = 4.0
"""The window may take as long as this many steps, each as slow as the hang limit allows.

Judgement: fewer ends a slow program whose every step is within the limit, more waits on for one
that will not fill its window."""
SLOW_CEILINGS = 5.0
"""The loader alone may take so many times its measured seconds: its workers start first."""
TRACE_S = 300.0
"""Longest time to trace a step."""
WHOLE_S = 3600.0
"""Longest time of a program that is run to its end: as long as its user made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Limits in seconds; None follows from other limits."""

    start_s: float | None = None
    hang_s: float | None = None
    run_s: float | None = None
    startup_s: float | None = None
    """Seconds of the original to its first step, once known."""

    def of(self, plan: MeasurePlan) -> tuple[float, float, float]:
        """Start, hang and total limits for `plan`."""
        start_s = self.start_s or max(START_S, LATE_START * (self.startup_s or 0.0))
        # a recompilation takes no longer than the start, which had one
        hang_s = self.hang_s or max(HANG_S, self.startup_s or 0.0)
        # no step ends while a program is compiled
        if any(override.knob == "compile" for override in plan.overrides):
            hang_s = max(hang_s, start_s)
        window_s = max(SLOW_WINDOW * plan.measure_s, SILENCES * hang_s)
        if plan.mode != "window":
            window_s = max(window_s, WHOLE_S)
        return (
            start_s,
            hang_s,
            self.run_s or start_s + window_s + parts_limit_s(plan) + hang_s,
        )


def parts_limit_s(plan: MeasurePlan) -> float:
    """Longest time for the parts, measured alone after the window."""
    if plan.trace:
        return TRACE_S
    parts = 1 + len(plan.ceilings_workers) if plan.ceilings_workers else 0
    return SLOW_CEILINGS * plan.ceilings_s * parts


def of_settings(workload: Workload, defaults: Defaults) -> ProcessLimits:
    return ProcessLimits(
        start_s=workload.start_limit or defaults.start_limit,
        hang_s=workload.hang_limit or defaults.hang_limit,
        run_s=workload.run_limit or defaults.run_limit,
    )


FEWEST_READINGS = 20
"""Readings that growth of memory is judged by, at least."""
LEAST_GROWTH_S = 40.0
"""Seconds that they have to span: two thirds of a run of a minute."""
INTERVAL_S = 0.5
"""Shortest time between readings of the process tree."""
LIGHT = 0.02
"""Largest share of time spent sampling: reading PSS stops a process briefly.

Judgement: more slows the program that is measured, less misses peaks of a large process tree."""


class Reading(NamedTuple):
    """Value at one moment, in epoch seconds of `clock.now`."""

    time: float
    value: float


class TreeSampler:
    """Memory and CPU time of all processes below `root`, over time."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._due = 0.0
        self._memory: list[Reading] = []
        """GiB of all processes, shared pages once."""
        self._cpu: deque[Reading] = deque(maxlen=256)
        """CPU seconds so far, ended processes included."""

    def sample(self) -> None:
        begun = time.monotonic()
        if begun < self._due:
            return
        memory = cpu_s = 0.0
        processes = tree(self._root)
        for process in processes:
            with contextlib.suppress(psutil.Error):
                cpu_s += sum(process.cpu_times()[:4])  # with those of awaited children
                memory += 0.0 if process.pid == self._root else _memory(process)
        if memory:
            self._memory.append(Reading(clock.now(), memory / GIB))
        if processes:
            self._cpu.append(Reading(clock.now(), cpu_s))
        self._due = begun + max(INTERVAL_S, (time.monotonic() - begun) / LIGHT)

    @property
    def peak_gib(self) -> float | None:
        return max((reading.value for reading in self._memory), default=None)

    def growth_gib_per_min(self) -> float | None:
        """Memory growth after the first third of samples; None below a minute."""
        later = self._memory[len(self._memory) // 3 :]
        if len(later) < FEWEST_READINGS or later[-1].time - later[0].time < LEAST_GROWTH_S:
            return None
        tenth = max(1, len(later) // 10)
        first, last = later[:tenth], later[-tenth:]
        grown_gib = median(r.value for r in last) - median(r.value for r in first)
        return (
            60.0
            * grown_gib
            / (median(r.time for r in last) - median(r.time for r in first))
        )

    def busy_cpus(self, start: float, end: float) -> float | None:
        inside = [reading for reading in self._cpu if start <= reading.time <= end]
        if len(inside) < 2:
            return None
        first, last = inside[0], inside[-1]
        return max(0.0, (last.value - first.value) / (last.time - first.time))


def own_numbers(root: int) -> dict[int, int]:
    """Return the numbers of processes below `root` by those in their own process space."""
    by_inner_number = {}
    for process in tree(root):
        status = text_of(Path(f"/proc/{process.pid}/status"))
        if numbers := re.search(r"^NSpid:\s(.+)$", status, re.MULTILINE):
            by_inner_number[int(numbers[1].split()[-1])] = process.pid
    return by_inner_number


def _memory(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.AccessDenied, AttributeError):
        return float(process.memory_full_info().pss)
    return float(process.memory_info().rss)


def oom_kills(root: Path = Path("/")) -> Counter[str]:
    """Count the kernel's kills in the nearest cgroup and on the host."""
    nearest = list(cgroup_folders(root, "memory"))[:1]
    names = ("memory.events", "memory.oom_control")
    inside = sum(_kills(folder / name) for folder in nearest for name in names)
    return Counter(cgroup=inside, host=_kills(root / "proc/vmstat"))


def _kills(path: Path) -> int:
    count = re.search(r"^oom_kill (\d+)$", text_of(path), re.MULTILINE)
    return int(count[1]) if count else 0
