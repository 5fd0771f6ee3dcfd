"""Samples over time, and their window summary."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from advisor.machine.readings import EVENT_REASONS
from advisor.model import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.machine.readings import GpuSample

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
    "event_reasons": "event_reasons",
    "foreign_pids": "processes",
}
"""Fields of Telemetry that may be missing, and the reading of each."""


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

    def summary(self, window_start: float, window_end: float) -> Telemetry:
        """Means over the window; gaps carry a reason."""
        return _Window(self, window_start, window_end).summary()


class _GapError(Exception):
    """Reason why a figure is missing; empty for a reading that was not there."""


class _Window:
    """Samples of one window, and the reasons of its gaps."""

    def __init__(self, recording: Recording, start: float, end: float) -> None:
        self.recording = recording
        self.start, self.seconds = start, end - start
        self.samples = [s for s in recording.samples if start <= s.time <= end]
        self.gpus = [sample.gpu for sample in self.samples]
        self.gaps: dict[str, str] = {}
        known = [busy for gpu in self.gpus if (busy := _is_busy(gpu)) is not None]
        self.busy = [gpu for gpu in self.gpus if _is_busy(gpu)] if known else None
        """Readings of a card at work; None where that is unknown."""

    def summary(self) -> Telemetry:
        if self.recording.no_gpu is not None:
            why = self.recording.no_gpu
            return Telemetry(gaps=tuple((field, why) for field in sorted(READ_AS)))
        loaded = self.gpus if self.busy is None else self.busy
        clocks, memory = _values(loaded, "sm_clock_mhz"), _values(self.gpus, "mem_used_gib")
        foreign = self._figure("foreign_pids", self._foreign_pids)
        found = Telemetry(
            gpu_util_pct=self._figure("gpu_util_pct", self._delayed, "util_pct"),
            gpu_mem_used_gib=self._figure("gpu_mem_used_gib", _reduced, memory, max),
            power_w=self._figure("power_w", self._delayed, "power_w"),
            energy_j=self._figure("energy_j", self._energy_j),
            sm_clock_mhz=self._figure("sm_clock_mhz", _reduced, clocks, statistics.median),
            sm_clock_spread_pct=_spread_pct(clocks),
            event_reasons=self._event_reasons(loaded),
            busy_samples=None if self.busy is None else len(self.busy),
            gpu_mem_others_gib=self._held_by_others_gib(),
            foreign_pids=None if foreign is None else int(foreign),
        )
        return replace(found, gaps=tuple(sorted(self.gaps.items())))

    def _figure(self, field: str, read: Callable[..., float], *args: Any) -> float | None:
        """Read a figure, or note the reason of its gap."""
        try:
            return read(*args)
        except _GapError as problem:
            reason = str(problem) or dict(self.recording.gaps).get(READ_AS.get(field, field))
        if not reason and not self.samples:
            reason = "no sample fell into the window"
        elif not reason and field == "sm_clock_mhz":
            reason = "the GPU was idle through the window"
        self.gaps[field] = reason or "it was not read inside the window"
        return None

    def _delayed(self, reading: str) -> float:
        """Mean of a reading that looks back by a second."""
        since = self.start + LAG_S
        later = [sample.gpu for sample in self.samples if sample.time >= since]
        if not later and _values(self.gpus, reading):
            msg = (
                f"the window of {self.seconds:.1f} s is no longer than the {LAG_S:g} s "
                "over which the driver averages"
            )
            raise _GapError(msg)
        return _reduced(_values(later, reading), statistics.fmean)

    def _event_reasons(self, loaded: Sequence[GpuSample]) -> tuple[tuple[str, float], ...]:
        """Share of busy samples with each event reason."""
        every, masks = _values(self.gpus, "event_reasons"), _values(loaded, "event_reasons")
        if not every:
            self._figure("event_reasons", _reduced, every, max)
        shares = []
        for bit, name in EVENT_REASONS.items():
            among = every if bit == IDLE else masks
            hits = sum(1 for mask in among if int(mask) & bit)
            if hits:
                shares.append((name, hits / len(among)))
        return tuple(shares)

    def _foreign_pids(self) -> int:
        """Count other processes with kernels on the GPU.

        A context that only holds memory, such as a notebook's, does not count. A driver may list
        ids of the host while we live in a container: unless one id is known as ours, others cannot
        be distinguished from ours. Under WSL2 it lists no process.
        """
        listed = [s for s in self.samples if s.gpu.processes is not None]
        if not listed:
            raise _GapError
        own = {pid for s in self.recording.samples for pid in s.own_pids}
        hidden: list[int] = [pid for s in listed for pid in s.hidden_pids]
        every = {process.pid for s in listed for process in s.gpu.processes or ()}
        working = {pid for s in listed for pid in s.gpu.working_pids or ()}
        if hidden and not own:
            msg = (
                f"the driver lists {len(set(hidden))} process ids of another namespace "
                "(a container), so ours cannot be told from others'"
            )
            raise _GapError(
                msg,
            )
        if self.busy and not every and not own:
            msg = "the GPU was at work but the driver lists no process on it"
            raise _GapError(msg)
        if self.busy and every - own and not working:
            msg = "the driver does not say which process ran kernels"
            raise _GapError(msg)
        passing = {pid for pid in hidden if hidden.count(pid) == 1 and len(listed) > 1}
        return len((every & working) - own - passing)

    def _held_by_others_gib(self) -> float | None:
        """Peak memory held by other processes, or None."""
        own = {pid for s in self.recording.samples for pid in s.own_pids}
        held = []
        for sample in self.samples:
            listed = sample.gpu.processes
            if listed is None or sample.hidden_pids:
                continue
            others = [each.memory_gib for each in listed if each.pid not in own]
            if None not in others:
                held.append(sum(filter(None, others)))
        return max(held, default=None)

    def _energy_j(self) -> float:
        if self.seconds < COUNTER_WINDOW_S and _values(self.gpus, "energy_j"):
            msg = (
                f"the window is shorter than {COUNTER_WINDOW_S:g} s, "
                "too short for the energy counter"
            )
            raise _GapError(msg)
        readings = [(s.time, s.gpu.energy_j) for s in self.recording.samples]
        points = [(time, value) for time, value in readings if value is not None]
        if len(points) < 2 or self.seconds <= 0:
            raise _GapError
        first = max(self.start, points[0][0])
        last = min(self.start + self.seconds, points[-1][0])
        covered = max(0.0, last - first) / self.seconds
        if covered < COVERED:
            msg = f"samples span only {covered:.0%} of the window"
            raise _GapError(msg)
        inside = [value for time, value in points if first <= time <= last]
        ends = [_at(points, first), *inside, _at(points, last)]
        if any(later < earlier for earlier, later in itertools.pairwise(ends)):
            msg = "its counter ran backwards inside the window"
            raise _GapError(msg)
        return (ends[-1] - ends[0]) / covered


def _values(gpus: Sequence[GpuSample], field: str) -> list[float]:
    values: list[Any] = [getattr(gpu, field) for gpu in gpus]
    return [value for value in values if value is not None]


def _reduced(values: list[float], how: Callable[[list[float]], float]) -> float:
    if not values:
        raise _GapError
    return how(values)


def _is_busy(gpu: GpuSample) -> bool | None:
    if gpu.util_pct is not None:
        return gpu.util_pct > 0
    if gpu.event_reasons is not None:
        return not gpu.event_reasons & IDLE
    return None


def _spread_pct(values: list[float]) -> float | None:
    """Central 90 % range as percent of the median."""
    if len(values) < 2:
        return None
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return 100 * (cuts[-1] - cuts[0]) / statistics.median(values)


def _at(points: list[tuple[float, float]], time: float) -> float:
    """The counter at `time`, which lies within the points."""
    for (t0, v0), (t1, v1) in itertools.pairwise(points):
        if t0 <= time <= t1:
            return v0 + (v1 - v0) * (time - t0) / (t1 - t0) if t1 > t0 else v1
    return points[-1][1]
