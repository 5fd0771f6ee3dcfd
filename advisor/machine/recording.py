"""Samples over time, and their window summary."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.machine.readings import EVENT_REASONS, GpuSample
from advisor.model import Telemetry

LAG_S = 1.0
"""Utilisation and power are the driver's own averages over up to this long before the reading."""
COUNTER_WINDOW_S = 2.0
"""Shortest window for the energy counter, which ticks about ten times a second."""
COVERED = 0.9
"""Share of the window that samples must span before a counter is scaled to it."""
IDLE = 0x1
READ_AS = {
    "gpu_util_pct": "util_pct",
    "gpu_mem_used_gib": "mem_used_gib",
    "power_w": "power_w",
    "energy_j": "energy_j",
    "sm_clock_mhz": "sm_clock_mhz",
    "foreign_pids": "processes",
}
"""Fields of Telemetry that may be missing, and the reading of each."""
NOT_READ = "too few readings in the window tell it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a card."""

    time: float
    """Epoch seconds."""
    gpu: GpuSample
    own_pids: tuple[int, ...] = ()
    """Those of `gpu.processes` that belong to the watched program."""
    hidden_pids: tuple[int, ...] = ()
    """Those that do not exist in our process id namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Samples of one card."""

    samples: tuple[Sample, ...]
    no_gpu: str | None = None
    """Why no GPU was watched."""
    gaps: tuple[tuple[str, str], ...] = ()
    """Field of a sample, and the reason it is missing."""

    def summary(self, start: float, end: float) -> Telemetry:
        """Means over the window; gaps carry a reason."""
        if self.no_gpu is not None:
            return Telemetry(gaps=tuple((field, self.no_gpu) for field in sorted(READ_AS)))
        inside = [sample for sample in self.samples if start <= sample.time <= end]
        gpus = [sample.gpu for sample in inside]
        later = [sample.gpu for sample in inside if sample.time >= start + LAG_S]
        known = any(_is_busy(gpu) is not None for gpu in gpus)
        busy = [gpu for gpu in gpus if _is_busy(gpu)] if known else gpus
        clocks = _values(busy, "sm_clock_mhz")
        found: dict[str, Any] = {
            "gpu_util_pct": _reduced(_values(later, "util_pct"), statistics.fmean),
            "gpu_mem_used_gib": _reduced(_values(gpus, "mem_used_gib"), max),
            "power_w": _reduced(_values(later, "power_w"), statistics.fmean),
            "energy_j": _energy_j(inside, end - start),
            "sm_clock_mhz": _reduced(clocks, statistics.median),
            "foreign_pids": _foreign_pids(inside, busy=known and bool(busy)),
        }
        reasons = dict(self.gaps)
        missing = sorted(field for field, value in found.items() if value is None)
        return Telemetry(
            **found,
            sm_clock_spread_pct=_spread_pct(clocks),
            event_reasons=_event_reasons(gpus, busy),
            busy_samples=len(busy) if known else None,
            gpu_mem_others_gib=_held_by_others_gib(inside),
            gaps=tuple((field, reasons.get(READ_AS[field], NOT_READ)) for field in missing),
        )


def _values(gpus: Sequence[GpuSample], field: str) -> list[float]:
    values: list[Any] = [getattr(gpu, field) for gpu in gpus]
    return [value for value in values if value is not None]


def _reduced(values: list[float], how: Callable[[list[float]], float]) -> float | None:
    return how(values) if values else None


def _is_busy(gpu: GpuSample) -> bool | None:
    if gpu.util_pct is not None:
        return gpu.util_pct > 0
    if gpu.event_reasons is not None:
        return not gpu.event_reasons & IDLE
    return None


def _event_reasons(
    gpus: Sequence[GpuSample], busy: Sequence[GpuSample]
) -> tuple[tuple[str, float], ...]:
    """Share of busy samples with each event reason."""
    every, masks = _values(gpus, "event_reasons"), _values(busy, "event_reasons")
    shares = []
    for bit, name in EVENT_REASONS.items():
        among = every if bit == IDLE else masks
        hits = sum(1 for mask in among if int(mask) & bit)
        if hits:
            shares.append((name, hits / len(among)))
    return tuple(shares)


def _foreign_pids(samples: Sequence[Sample], *, busy: bool) -> int | None:
    """Count other processes that ran kernels in two listings, or in the only one.

    A context that only holds memory, such as a notebook's, does not count. Where the driver names
    processes of another namespace, or does not say who works, others cannot be told from ours.
    """
    listed = [sample for sample in samples if sample.gpu.processes is not None]
    own = {pid for sample in samples for pid in sample.own_pids}
    hidden = any(sample.hidden_pids for sample in listed)
    others = {each.pid for sample in listed for each in sample.gpu.processes or ()} - own
    working = Counter(pid for sample in listed for pid in sample.gpu.working_pids or ())
    unnamed = busy and not working and (others or not own)
    if not listed or unnamed or (hidden and not own):
        return None
    return sum(working[pid] >= min(2, len(listed)) for pid in others)


def _held_by_others_gib(samples: Sequence[Sample]) -> float | None:
    """Peak memory held by other processes, or None."""
    held = []
    for sample in samples:
        listed = sample.gpu.processes
        if listed is None or sample.hidden_pids:
            continue
        others = [each.memory_gib for each in listed if each.pid not in sample.own_pids]
        if None not in others:
            held.append(sum(filter(None, others)))
    return max(held, default=None)


def _energy_j(samples: Sequence[Sample], seconds: float) -> float | None:
    """Growth of the energy counter, scaled to the window."""
    points = [(s.time, s.gpu.energy_j) for s in samples if s.gpu.energy_j is not None]
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
