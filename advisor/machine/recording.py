"""Samples of cards and host over time, and their summary by window."""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import psutil

from advisor import clock
from advisor.machine.contention import tree
from advisor.machine.gpu import shown_devices
from advisor.machine.readings import EVENT_REASONS, READINGS, GpuReader, GpuSample
from advisor.model import Card, Telemetry


def positions(uuids: Sequence[str | None], used: Sequence[Card]) -> list[int]:
    """Positions of the cards used, among those watched.

    CUDA and NVML may number cards differently: UUIDs decide, else the number.
    """
    numbers: dict[int, None] = {}
    for card in used:
        same = [n for n, uuid in enumerate(uuids) if same_uuid(uuid, card.uuid)]
        untold = card.uuid is None or None in uuids
        by_number = [card.index] if untold and card.index < len(uuids) else []
        numbers |= dict.fromkeys(same or by_number)
    return list(numbers)


def same_uuid(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and _bare(one) == _bare(other)


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


HOW: dict[str, Callable[[list[Any]], Any]] = {
    "gpu_util_pct": statistics.fmean,
    "gpu_mem_used_gib": max,
    "gpu_mem_others_gib": max,
    "power_w": sum,
    "energy_j": sum,
    "sm_clock_mhz": statistics.fmean,
    "sm_clock_spread_pct": max,
    "busy_samples": min,
    "foreign_pids": sum,
}
"""Way in which figures of several cards become one."""


def merged(each: Sequence[Telemetry]) -> Telemetry:
    """Merge cards; a figure that one withholds is None."""
    whole: dict[str, Any] = {}
    for name, how in HOW.items():
        figures = [getattr(telemetry, name) for telemetry in each]
        whole[name] = None if None in figures else how(figures)
    reasons: dict[str, float] = {}
    for name, share in (reason for telemetry in each for reason in telemetry.event_reasons):
        reasons[name] = max(share, reasons.get(name, 0.0))
    return Telemetry(
        **whole,
        event_reasons=tuple(reasons.items()),
        gaps=tuple(sorted({gap for telemetry in each for gap in telemetry.gaps})),
    )


LAG_S = 1.0
"""Longest time over which drivers average utilisation and power.

Source: NVML's API reference: utilisation is of 1/6 to 1 s, power of 1 s on most cards since Ampere.
"""
COUNTER_WINDOW_S = 2.0
"""Shortest window in seconds for the energy counter: a tick of 0.1 s is 5 % of it.

Judgement: shorter gives figures that a tick moves further, longer leaves brief windows without
energy. No record has the tick, which cards may differ in."""
COVERED = 0.9
"""Share of the window that samples must span to scale a counter to it.

Judgement: the rest is taken to use as much power; a shorter span misses a part of the steps."""
IDLE = 0x1
"""Clock event reason of a card without work (nvmlClocksEventReasonGpuIdle)."""
SHARED = "other programs worked on the card, and its counter is of all"
NOT_READ = "too few readings of the card in the window"
UNNAMED = "the driver does not say which programs work on the card"


def summed_up(
    samples: Sequence[GpuSample], gaps: Mapping[str, str], start: float, end: float
) -> Telemetry:
    """Mean readings of a card over the window, with each gap's reason.

    Utilisation and power are the driver's means over up to LAG_S, so the first ones of a window
    are of the time before it. Clocks are those of a card at work: an idle one lowers them.
    """
    inside = [sample for sample in samples if start <= sample.time <= end]
    later = [sample for sample in inside if sample.time >= start + LAG_S]
    tells_load = any(_is_busy(sample) is not None for sample in inside)
    busy = [sample for sample in inside if _is_busy(sample)] if tells_load else inside
    clocks = _values(busy, "sm_clock_mhz")
    values: dict[str, Any] = {
        "gpu_util_pct": _reduced(_values(later, "gpu_util_pct"), statistics.fmean),
        "gpu_mem_used_gib": _reduced(_values(inside, "gpu_mem_used_gib"), max),
        "power_w": _reduced(_values(later, "power_w"), statistics.fmean),
        "energy_j": _energy_j(inside, end - start),
        "sm_clock_mhz": _reduced(clocks, statistics.median),
        "foreign_pids": _foreign_pids(inside, busy=tells_load and bool(busy)),
    }
    unnamed = UNNAMED if any(s.processes is not None for s in inside) else NOT_READ
    reasons = {"foreign_pids": gaps.get("processes", unnamed), **gaps}
    if values["foreign_pids"]:  # the counter is the card's, and who used what is not told
        values["energy_j"] = None
        reasons["energy_j"] = SHARED
    missing = sorted(field for field, value in values.items() if value is None)
    return Telemetry(
        **values,
        sm_clock_spread_pct=_spread_pct(clocks),
        event_reasons=_event_reasons(busy),
        busy_samples=len(busy) if tells_load else None,
        gpu_mem_others_gib=_held_by_others_gib(inside),
        gaps=tuple((field, reasons.get(field, NOT_READ)) for field in missing),
    )


def _values(samples: Sequence[GpuSample], field: str) -> list[float]:
    values: list[Any] = [getattr(sample, field) for sample in samples]
    return [value for value in values if value is not None]


def _reduced(values: list[float], how: Callable[[list[float]], float]) -> float | None:
    return how(values) if values else None


def _is_busy(sample: GpuSample) -> bool | None:
    if sample.gpu_util_pct is not None:
        return sample.gpu_util_pct > 0
    if sample.event_reasons is not None:
        return not sample.event_reasons & IDLE
    return None


def _event_reasons(busy: Sequence[GpuSample]) -> tuple[tuple[str, float], ...]:
    masks = _values(busy, "event_reasons")
    hits = {
        name: sum(bool(int(m) & bit) for m in masks) for bit, name in EVENT_REASONS.items()
    }
    return tuple((name, count / len(masks)) for name, count in hits.items() if count)


def _foreign_pids(samples: Sequence[GpuSample], *, busy: bool) -> int | None:
    """Count other processes that ran kernels in two listings, or in the only one.

    A context that only holds memory, like a notebook's, does not count, and a process that was
    at work in one listing of many may just have started. None where nothing was listed; where
    the listing is of another namespace, so that even ours is not among its numbers; and where
    the card worked for somebody whom the driver does not name, unless only ours are there.
    """
    listed = [sample for sample in samples if sample.processes is not None]
    own_pids = {pid for sample in samples for pid in sample.own_pids}
    others = {pid for sample in listed for pid in sample.processes or ()} - own_pids
    working = Counter(pid for sample in listed for pid in sample.working_pids or ())
    of_another_namespace = not own_pids and any(sample.hidden_pids for sample in listed)
    only_ours_are_there = bool(own_pids) and not others
    worker_is_unnamed = busy and not working and not only_ours_are_there
    if not listed or of_another_namespace or worker_is_unnamed:
        return None
    often_enough = min(2, len(listed))
    return sum(working[pid] >= often_enough for pid in others)


def _held_by_others_gib(samples: Sequence[GpuSample]) -> float | None:
    sums_gib = []
    for sample in samples:
        if sample.processes is None or sample.hidden_pids:
            continue
        others = [
            gib for pid, gib in sample.processes.items() if pid not in sample.own_pids
        ]
        if None not in others:
            sums_gib.append(sum(filter(None, others)))
    return max(sums_gib, default=None)


def _energy_j(samples: Sequence[GpuSample], seconds: float) -> float | None:
    points = [(s.time, s.energy_j) for s in samples if s.energy_j is not None]
    if seconds < COUNTER_WINDOW_S or len(points) < 2:
        return None
    (first_s, first_j), (last_s, last_j) = points[0], points[-1]
    if last_s - first_s < COVERED * seconds or last_j < first_j:
        return None
    return (last_j - first_j) * seconds / (last_s - first_s)


def _spread_pct(values: list[float]) -> float | None:
    """Central 90 % range as percent of the median."""
    if len(values) < 2:
        return None
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return 100 * (cuts[-1] - cuts[0]) / statistics.median(values)


INTERVAL_S = 0.1
"""Time between readings of a card; judgement: a window of 3 s has 30, and each wakes a thread."""
SLOW_INTERVAL_S = 1.0
"""Time between listings of its processes, which take longer."""


class Sampler:
    """Sampler of all GPUs in `environ`; processes below `root` are the program's."""

    def __init__(self, root: int, environ: Mapping[str, str]) -> None:
        nvml, devices, self._no_gpu = shown_devices(environ)
        self._readers = [GpuReader(device, nvml) for device in devices]
        self._root = root
        self._own: set[int] = set()
        """Process ids of the program, even ended: a driver may still list them."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def memory_gib(self, used: Sequence[Card] = ()) -> float | None:
        """Memory of the first card used; None if the driver does not say."""
        each = positions([reader.uuid for reader in self._readers], used) or [0]
        return self._readers[each[0]].memory_gib() if self._readers else None

    def summary(self, start: float, end: float, used: Sequence[Card] = ()) -> Telemetry:
        if self._no_gpu is not None:
            return summed_up((), dict.fromkeys(READINGS, self._no_gpu), start, end)
        each = positions([reader.uuid for reader in self._readers], used) or [0]
        cards = (self._readers[number] for number in each)
        return merged([summed_up(c.samples, c.gaps, start, end) for c in cards])

    def _run(self) -> None:
        slow_due = 0.0
        while not self._stopping.wait(INTERVAL_S):
            slow = time.monotonic() >= slow_due
            if slow:
                slow_due = time.monotonic() + SLOW_INTERVAL_S
            self._look(slow=slow)
        self._look(slow=True)

    def _look(self, *, slow: bool) -> None:
        for reader in self._readers:
            now, sample = clock.now(), reader.sample(slow=slow)
            own_pids, hidden = self.split(tuple(sample.processes or ()))
            reader.samples.append(
                replace(sample, time=now, own_pids=own_pids, hidden_pids=hidden)
            )

    def split(self, pids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split `pids` into ours and unknown namespaces."""
        if not self._own.issuperset(pids):
            self._own |= {process.pid for process in tree(self._root)}
        hidden = (
            pid for pid in pids if pid not in self._own and not psutil.pid_exists(pid)
        )
        return tuple(pid for pid in pids if pid in self._own), tuple(hidden)
