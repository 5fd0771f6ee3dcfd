"""What others take of this host's CPUs, a tenth of a second at a time.

Others' work is what the CPUs did less what we did: that also counts processes which lived too
short to be seen. A CPU's work is its time less its idle time, for the kernel measures idleness but
only samples work. Interrupts are nobody's: those of the run's own reads and packets are among them.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from advisor.machine.host import affinity, cgroup_throttled_s, cpu_quota
from advisor.machine.processes import ProcessStat, TreeClock, read, read_all
from advisor.model import Disturbance, Neighbour

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SLICE_S = 0.1
"""Shortest slice: the kernel tells CPU time in hundredths of a second, for each CPU."""
SCAN_S = 1.0
"""Shortest time between two readings of all processes, which only name the others."""
LIGHT = 0.01
"""Largest share of one CPU that looking may take, slices and names each."""

TOGETHER_S, READINGS = 0.002, 3
"""Counters that were read further apart than this, because somebody was let in between, do not go
together; they are read again, so many times at most."""

TAKEN_CPUS = 0.05
"""In a slice others took a CPU from a run that waited so long, while they worked so long."""
TICK_S = 0.01
"""... and longer than the kernel's hundredths, one for each CPU, can be wrong by together."""
CROWD_SHARE = 0.10
"""Others with more of the CPUs than this slow a run that never waits: caches, clocks, siblings."""
CROWDED_SHARE = 0.5
"""... where together with the run they are more than half of the CPUs; below, each has a core."""
STEAL_SHARE = 0.05
"""Of the CPUs' time, by the hypervisor: one hundredth in a slice on two CPUs is just not it."""

NAMED = 5
"""Most others that are told by name."""
LEAST_CPUS = 0.02
"""Less than this is not worth a name."""
SHORT_LIVED = "short-lived processes"
UNSEEN = "GPU_ADVISOR_OTHERS"
"""Environment: `unseen` where what the host tells of others is not to be believed, as in some
containers. Nobody is waited for then, and no run is called disturbed or undisturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """A stretch of time, and what was done in it on the CPUs that we may use."""

    start: float
    """Epoch seconds."""
    end: float
    cpus: int
    own_cpus: float
    """Kept busy by the run and by us."""
    others_cpus: float | None
    """None where the host does not tell, as the next two."""
    waited_cpus: float | None
    """Threads of the run that were ready and had no CPU, whoever had it."""
    steal_share: float | None

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def taken_cpus(self) -> float | None:
        """What others took: what the run waited for, if they worked that long meanwhile."""
        if self.others_cpus is None or self.waited_cpus is None:
            return None
        return min(self.others_cpus, self.waited_cpus)

    @property
    def disturbed(self) -> bool | None:
        """Whether others were in the way; None where the host does not tell."""
        if self.others_cpus is None:
            return None
        others = self.others_cpus / self.cpus
        crowded = others + self.own_cpus / self.cpus > CROWDED_SHARE
        least = max(TAKEN_CPUS, TICK_S * math.sqrt(self.cpus) / self.seconds)
        return (
            (self.taken_cpus or 0.0) > least
            or (others > CROWD_SHARE and crowded)
            or (self.steal_share or 0.0) > STEAL_SHARE
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    time: float
    idle_s: float | None
    """Of all the CPUs, with interrupts and what was stolen."""
    steal_s: float | None
    own_s: float
    waited_s: float | None
    throttled_s: float | None
    """Held at the cgroup's own quota."""


class Others:
    """Looks again and again at what others do beside the process tree of `root`, if any.

    Call `look` as often as you like; it reads when a slice is full.
    """

    def __init__(self, root: int | None = None) -> None:
        self._cpus = affinity()
        self._quota = cpu_quota()
        self._root = root
        self._clock = TreeClock(root) if root is not None else None
        self._due = self._scan_due = 0.0
        self._scans: list[tuple[float, dict[str, float]]] = []
        """Epoch seconds, and CPU seconds by command name since the scan before."""
        self._processes: dict[int, ProcessStat] = {}
        self.slices: list[LoadSample] = []
        self._before: _Reading | None = None

    def look(self, *, now: bool = False) -> bool:
        """Take what is due (`now`: in any case); whether a slice came to it."""
        begun, spent = time.monotonic(), time.thread_time()
        if begun < self._due and not now:
            return False
        reading = self._read()
        before, self._before = self._before, reading
        if before is not None and reading.time > before.time:
            self.slices.append(_slice(before, reading, len(self._cpus)))
        looked = time.thread_time()
        self._due = begun + max(SLICE_S, (looked - spent) / LIGHT)
        if begun >= self._scan_due or now:
            self._scan()
            self._scan_due = begun + max(SCAN_S, (time.thread_time() - looked) / LIGHT)
        return before is not None

    def who(self, start: float, end: float) -> tuple[Neighbour, ...]:
        """The busiest others between two epoch times, most first; of what no process that could
        be seen did, the rest is told as short-lived processes."""
        by_name: dict[str, float] = defaultdict(float)
        seconds = 0.0
        for (before, _), (at, spent) in pairwise(self._scans):
            inside = min(at, end) - max(before, start)
            if inside > 0:
                seconds += inside
                for name, cpu_s in spent.items():
                    by_name[name] += cpu_s * inside / (at - before)
        if not by_name:
            return ()
        known = sum(by_name.values()) / seconds
        slices = (each for each in self.slices if each.start < end and each.end > start)
        others = mean((each, each.others_cpus) for each in slices) or 0.0
        if others - known > max(LEAST_CPUS, others / 4):
            by_name[SHORT_LIVED] += (others - known) * seconds
        busiest = sorted(by_name.items(), key=lambda entry: -entry[1])[:NAMED]
        return tuple(
            Neighbour(name=name, cpus=cpu_s / seconds)
            for name, cpu_s in busiest
            if cpu_s / seconds >= LEAST_CPUS
        )

    def _read(self) -> _Reading:
        tries = READINGS
        while True:
            begun, spent = time.monotonic(), time.thread_time()
            reading = self._read_once()
            tries -= 1
            kept_out_s = time.monotonic() - begun - (time.thread_time() - spent)
            if kept_out_s < TOGETHER_S or not tries:
                return reading

    def _read_once(self) -> _Reading:
        clock = self._clock
        if clock is not None:
            clock.look()
        idle_s, steal_s = _idle(self._cpus)
        return _Reading(
            time=time.time(),
            idle_s=idle_s,
            steal_s=steal_s,
            own_s=time.process_time() + (clock.cpu_s if clock is not None else 0.0),
            waited_s=clock.waited_s if clock is not None else None,
            throttled_s=cgroup_throttled_s(self._quota.folder) if self._quota else None,
        )

    def _scan(self) -> None:
        processes, before = read_all(), self._processes
        self._processes = processes
        own = {os.getpid(), *_descendants(processes, self._root)}
        spent: dict[str, float] = defaultdict(float)
        if before:
            for name, cpu_s in _spent(before, processes, own):
                spent[name] += cpu_s
        self._scans.append((time.time(), spent))


def look(seconds: float) -> Disturbance:
    """What others do here right now, before a process of ours begins. `disturbed`: they hold so
    much that it would suffer."""
    if _unseen():
        return Disturbance()
    others = Others()
    others.look(now=True)
    begun = time.time()
    time.sleep(seconds)
    others.look(now=True)
    seen = others.slices[-1]
    crowd = None if seen.others_cpus is None else seen.others_cpus > CROWD_SHARE * seen.cpus
    return Disturbance(
        disturbed=None if crowd is None else crowd or (seen.steal_share or 0.0) > STEAL_SHARE,
        others_cpus=seen.others_cpus,
        steal_share=seen.steal_share,
        who=others.who(begun, time.time()),
    )


def mean(values: Iterable[tuple[LoadSample, float | None]]) -> float | None:
    """Mean over time of a figure of slices; None where none of them has it."""
    known = [(each.seconds, value) for each, value in values if value is not None]
    seconds = sum(length for length, _ in known)
    return sum(length * value for length, value in known) / seconds if seconds > 0 else None


def _slice(before: _Reading, after: _Reading, cpus: int) -> LoadSample:
    seconds = after.time - before.time
    own = max(0.0, after.own_s - before.own_s) / seconds
    others = steal = waited = None
    if after.idle_s is not None and before.idle_s is not None:
        others = max(0.0, cpus - (after.idle_s - before.idle_s) / seconds - own)
    if after.steal_s is not None and before.steal_s is not None:
        steal = max(0.0, after.steal_s - before.steal_s) / seconds / cpus
    held = after.throttled_s != before.throttled_s  # then it waited for its own quota too
    if after.waited_s is not None and before.waited_s is not None and not held:
        waited = max(0.0, after.waited_s - before.waited_s) / seconds
    return LoadSample(
        start=before.time,
        end=after.time,
        cpus=cpus,
        own_cpus=own,
        others_cpus=others,
        waited_cpus=waited,
        steal_share=steal,
    )


def _unseen() -> bool:
    return os.environ.get(UNSEEN) == "unseen"


def _idle(cpus: Collection[int]) -> tuple[float | None, float | None]:
    """Seconds since boot in which these CPUs did nobody's work, and of those the stolen ones."""
    ticks = float(os.sysconf("SC_CLK_TCK"))
    idle = steal = 0.0
    found = 0
    if _unseen():
        return None, None
    for line in read("/proc/stat").splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu"):
            break  # the rest is long on large hosts
        if name[3:].isdecimal() and int(name[3:]) in cpus and len(fields) >= 8:
            found += 1
            idle += sum(map(int, fields[3:8])) / ticks  # idle iowait irq softirq steal
            steal += int(fields[7]) / ticks
    return (idle, steal) if found == len(cpus) and idle > 0 else (None, None)


def _descendants(processes: dict[int, ProcessStat], root: int | None) -> set[int]:
    """`root` and everything below it."""
    if root is None:
        return set()
    below: dict[int, list[int]] = defaultdict(list)
    for process in processes.values():
        below[process.parent].append(process.pid)
    found, pending = set(), [root]
    while pending:
        pid = pending.pop()
        if pid not in found:
            found.add(pid)
            pending += below[pid]
    return found


def _spent(
    before: dict[int, ProcessStat], after: dict[int, ProcessStat], own: Collection[int]
) -> Iterable[tuple[str, float]]:
    """(command name, CPU seconds) of every other process between two scans.

    What ended meanwhile (the compilers of a build) goes to whoever of its ancestors still is there
    and waited for it, less what it had done by the first scan.
    """
    ended_s: dict[int, float] = defaultdict(float)
    for pid, process in before.items():
        if pid not in after:
            heir = process.parent
            while heir not in after and heir in before:
                heir = before[heir].parent
            ended_s[heir] += process.cpu_s + process.children_s
    for pid, process in after.items():
        known = before.get(pid)
        if pid in own:
            continue
        if known is None:
            yield process.name, process.cpu_s + process.children_s
        else:
            children_s = process.children_s - known.children_s
            yield process.name, process.cpu_s - known.cpu_s
            yield process.name, max(0.0, children_s - ended_s[pid])
