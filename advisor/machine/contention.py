"""Contention: CPU use of others and CPU waits.

The kernel counts how long each thread was ready to run and had no CPU. A run is contended
when its threads waited so, and others held a notable part of the machine. Either alone says
nothing: a program with more threads than CPUs waits for itself, and others that keep CPUs busy
which the run does not want slow nothing down.

The wait of a thread is gone with the thread. So the last reading of a window is made before its
end, while the program lives, and a window without one is unknown, which is not the same as quiet.
"""

import contextlib
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from advisor import clock
from advisor.machine.readings import HARMFUL_EVENT_REASONS, SOFTWARE_THERMAL
from advisor.model import Disturbance, Neighbour, Telemetry
from advisor.numbers import WORTH_SAYING

# The bounds are judgement: less than they say is the normal life of a machine.
SAMPLE_S = 0.5
"""Shortest time between readings."""
LIGHT = 0.01
"""Largest share of one CPU for reading the processes."""
WAITED_SHARE = 0.10
"""A contended run's threads waited for CPUs at least this share of the window, all together.

Judgement: smaller repeats rounds for the waits of any shared host. Larger lets runs count that
others slowed by a tenth."""
OTHERS_SHARE = 0.25
"""Others kept at least this share of the machine's CPUs busy beside a contended run.

Judgement: smaller blames a desktop for what a program with too many threads does to itself, larger
misses real neighbours."""
STEAL_SHARE = 0.05
"""Share of CPU time given to others by the hypervisor from which that alone is contention.

Judgement: smaller calls most virtual machines contended, larger lets runs count that lost more
than a twentieth of their time."""
HELD_SHARE = 0.01
"""Share of busy samples from which held clocks count.

Judgement: smaller discards a run for one sample at its start, larger hides a card that slows down
for seconds."""
SAGGED_PCT = 5.0
"""Least spread of clocks, in percent, under thermal slowdown.

A warm laptop's card reports the slowdown in every run, at a steady clock: it would be contention
always. So it counts only where the clock moved.

Judgement: smaller counts the small steps in which each card moves its clock, larger lets a run on a
hot card pass."""

STARVED_CPUS = 0.5
"""Fewer busy CPUs than these, beside STARVED_COMPUTE, are a program that waits for a CPU.

Judgement: what computes all the time keeps one CPU busy, unless others have it half of the time."""
STARVED_COMPUTE = 0.9
"""Share of the time in which the program computes, by the clock, from which that holds."""

NAMED = 5
"""Programs that a judgement names."""
MOST_NAMED = 3
"""Programs that a sentence names: the first of them."""
LEAST_CPUS = 0.05
"""A process that keeps fewer CPUs busy is not named."""
SHORT_LIVED = "short-lived processes"
UNSEEN = "GPU_ADVISOR_OTHERS"
"""Variable: `unseen` where the host's account of others is wrong."""

UNREADABLE = (psutil.Error, OSError, ValueError, IndexError, RuntimeError)
"""Errors of psutil where parts of /proc are missing."""

ProcessKey = tuple[int, float]
"""Process id and time of creation."""
Thread = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReading:
    time: float
    """Epoch seconds of `clock.now`."""
    busy_s: float
    """CPU seconds of all processes, on the CPUs we may use."""
    steal_s: float
    own_s: Mapping[int, float]
    """CPU seconds by root: of the run, each trial beside it, this process."""
    waited_s: Mapping[Thread, float]
    """Seconds each thread of the run waited for a CPU so far."""
    others: Mapping[ProcessKey, tuple[str, float]]
    """Name and CPU seconds of every other process."""


OURS = "gpu-advisor"
"""Name of our own processes; that of another call is a neighbour like any other."""
RUNNING: set[int] = set()
"""Roots of trials that run at once: to each other no neighbours."""


class LoadMonitor:
    """Readings of who used the CPUs, to be judged for a window of time once that is known.

    `root`: process whose tree is the trial's own; without one only this process is.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = root
        self._cpus = os.sched_getaffinity(0)
        self._due = 0.0
        self.readings: list[LoadReading] = []

    def sample(self, *, force: bool = False) -> None:
        """Read once one is due, or at once where a window ends: later its threads are gone.

        What a reading costs is its own CPU time. By the wall clock, a host that gives us none
        would have the fewest readings just where it is contended most.
        """
        begun, worked_s = time.monotonic(), time.thread_time()
        if unseen() or (begun < self._due and not force):
            return
        with contextlib.suppress(*UNREADABLE):
            self.readings.append(self._read())
        self._due = begun + max(SAMPLE_S, (time.thread_time() - worked_s) / LIGHT)

    def between(self, start: float, end: float) -> Disturbance:
        return judge(self.readings, start, end, len(self._cpus))

    def _read(self) -> LoadReading:
        """CPU time of this trial's tree, of trials beside it, and of every other process."""
        run = {process.pid for process in tree(self._root)}
        roots = {
            process.pid: root for root in RUNNING - {self._root} for process in tree(root)
        }
        roots |= {pid: self._root for pid in run if self._root} | {os.getpid(): os.getpid()}
        own_s: dict[int, float] = defaultdict(float)
        others = {}
        for process in psutil.process_iter(["name", "cpu_times", "create_time"]):
            times = process.info["cpu_times"]
            if times is None:
                continue
            cpu_s = times.user + times.system
            if root := roots.get(process.pid):
                own_s[root] += cpu_s
                if process.pid != os.getpid():  # our children are earlier trials, too
                    own_s[root] += times.children_user + times.children_system
            elif process.info["name"] == OURS and is_kin(process):
                own_s[os.getpid()] += cpu_s
            else:
                key = process.pid, process.info["create_time"]
                others[key] = process.info["name"] or "?", cpu_s
        busy_s = steal_s = 0.0
        for number, times in enumerate(psutil.cpu_times(percpu=True)):
            if number in self._cpus:
                # interrupts have no owner, and include those of the run's reads
                busy_s += times.user + times.nice + times.system
                steal_s += times.steal
        if not busy_s:
            msg = "the kernel tells no CPU time"
            raise ValueError(msg)
        return LoadReading(
            time=clock.now(),
            busy_s=busy_s,
            steal_s=steal_s,
            own_s=own_s,
            waited_s=waited_s(run),
            others=others,
        )


def look(seconds: float) -> Disturbance:
    """Judge the load before our process starts."""
    if unseen():
        return Disturbance()
    monitor = LoadMonitor()
    monitor.sample(force=True)
    begun = clock.now()
    time.sleep(seconds)
    monitor.sample(force=True)
    disturbance = monitor.between(begun, clock.now())
    if disturbance.others_cpus is None:
        return disturbance
    # nothing of ours waits yet, so others alone decide
    busy = disturbance.others_cpus > OTHERS_SHARE * len(os.sched_getaffinity(0))
    return replace(
        disturbance, disturbed=busy or (disturbance.steal_share or 0.0) > STEAL_SHARE
    )


def judge(
    readings: Sequence[LoadReading], start: float, end: float, cpus: int
) -> Disturbance:
    """Judge contention by the readings around a window.

    Waits are known as far as threads of the run were read inside the window; without such a
    reading contention is unknown, which is not the same as none.
    """
    before = [reading for reading in readings if reading.time <= start][-1:]
    after = [reading for reading in readings if reading.time >= end][:1]
    inside = [reading for reading in readings if start < reading.time < end]
    window = [*before, *inside, *after]
    if len(window) < 2:
        return Disturbance()
    first, last = window[0], window[-1]
    seconds = last.time - first.time
    own_cpus = _own_s(window) / seconds
    others = max(0.0, (last.busy_s - first.busy_s) / seconds - own_cpus)
    steal = max(0.0, last.steal_s - first.steal_s) / seconds / cpus
    waited = sum(
        max(0.0, total_s - a.waited_s.get(thread, 0.0))
        for a, b in itertools.pairwise(window)
        for thread, total_s in b.waited_s.items()
    )
    alive = [
        reading.time for reading in window[1:] if reading.waited_s and reading.time > start
    ]
    contended: bool | None = steal > STEAL_SHARE
    if alive:
        waits = waited > WAITED_SHARE * (alive[-1] - first.time)
        contended = contended or (waits and others > OTHERS_SHARE * cpus)
    return Disturbance(
        disturbed=contended if alive or contended else None,
        own_cpus=own_cpus,
        others_cpus=others,
        steal_share=steal,
        who=_busiest(window, seconds, others),
    )


def on_card(disturbance: Disturbance, telemetry: Telemetry) -> Disturbance:
    """Add GPU contention and clock limits."""
    spread_pct = telemetry.sm_clock_spread_pct
    sagged = spread_pct is not None and spread_pct >= SAGGED_PCT
    harmful = HARMFUL_EVENT_REASONS - (set() if sagged else {SOFTWARE_THERMAL})
    reasons = tuple(
        (reason, share)
        for reason, share in telemetry.event_reasons
        if reason in harmful and share > HELD_SHARE
    )
    foreign = telemetry.foreign_pids
    contended = True if foreign or reasons else disturbance.disturbed
    return replace(
        disturbance, disturbed=contended, foreign_gpu_pids=foreign, clocks_held=reasons
    )


def starvation(seen: Disturbance, compute: float | None) -> str:
    """Sentence on a run that computes on CPUs it hardly had; empty if none."""
    busy = seen.own_cpus
    if busy is None or busy >= STARVED_CPUS or (compute or 0.0) < STARVED_COMPUTE:
        return ""
    took = f"while computing took {compute:.0%} of the time"
    return f"starved of CPU: {busy:.1f} CPUs were busy {took}"


def in_words(seen: Disturbance) -> str:
    """Load of others as text: `others keep 1.3 CPUs busy (firefox 0.8, make 0.4)`."""
    parts = []
    if seen.others_cpus is not None:
        names = ", ".join(
            f"{neighbour.name} {neighbour.cpus:.1f}" for neighbour in seen.who[:MOST_NAMED]
        )
        named = f" ({names})" if names else ""
        parts.append(f"others keep {seen.others_cpus:.1f} CPUs busy{named}")
    if seen.steal_share and seen.steal_share >= WORTH_SAYING:
        parts.append(
            f"the hypervisor gives {seen.steal_share:.0%} of the CPUs' time to others"
        )
    if seen.foreign_gpu_pids:
        parts.append(f"others' processes on the GPU: {seen.foreign_gpu_pids}")
    parts += [f"{reason} holds the GPU's clocks" for reason, _ in seen.clocks_held]
    return ", ".join(parts)


def is_kin(process: psutil.Process) -> bool:
    """True for an ancestor or a child of this process: a call of ours, and no neighbour."""
    with contextlib.suppress(psutil.Error):
        pids = [os.getpid(), *(parent.pid for parent in psutil.Process().parents())]
        return process.pid in pids or process.ppid() in pids
    return False


def waited_s(pids: Iterable[int]) -> dict[Thread, float]:
    """Seconds that threads of `pids` waited for CPUs. Raises OSError."""
    waited: dict[Thread, float] = {}
    proc = Path("/proc")
    (proc / "self/schedstat").stat()
    for pid in pids:
        for path in proc.glob(f"{pid}/task/*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited[pid, int(path.parent.name)] = int(path.read_text().split()[1]) / 1e9
    return waited


def unseen() -> bool:
    return os.environ.get(UNSEEN) == "unseen"


def _own_s(window: Sequence[LoadReading]) -> float:
    """CPU seconds of our trees; an ended one keeps its last reading."""
    last_s: dict[int, float] = {}
    for reading in window:
        last_s |= reading.own_s
    return sum(max(0.0, s - window[0].own_s.get(root, 0.0)) for root, s in last_s.items())


def _busiest(
    window: Sequence[LoadReading], seconds: float, others_cpus: float
) -> tuple[Neighbour, ...]:
    first, last = window[0].others, window[-1].others
    by_name: dict[str, float] = defaultdict(float)
    for key, (name, cpu_s) in last.items():
        by_name[name] += (cpu_s - first[key][1] if key in first else cpu_s) / seconds
    by_name[SHORT_LIVED] = others_cpus - sum(by_name.values())
    busiest = sorted(by_name.items(), key=lambda entry: -entry[1])[:NAMED]
    return tuple(
        Neighbour(name=name, cpus=cpus) for name, cpus in busiest if cpus >= LEAST_CPUS
    )


def tree(root: int | None) -> list[psutil.Process]:
    """Process `root` and descendants; empty if gone."""
    if root is not None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(root)
            return [process, *process.children(recursive=True)]
    return []
