"""Samples over time, and their window summary.

File format (JSON lines): a header object, then one object a sample, absent keys meaning None.
Versions:
1  first release
"""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from advisor.machine.readings import EVENT_REASONS, GpuProcess, GpuSample
from advisor.model import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FORMAT = 1

LAG_S = 1.0
"""Utilisation and power are the driver's own averages over up to this long before the reading."""

COUNTER_WINDOW_S = 2.0
"""Shortest window for the energy counter, which ticks about ten times a second."""

COVERED = 0.9
"""Share of the window that samples must span before a counter is scaled to it."""

_IDLE = 0x1
_GPU_FIELDS = (
    "gpu_util_pct",
    "gpu_mem_used_gib",
    "power_w",
    "energy_j",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "temperature_c",
    "event_reasons",
    "foreign_pids",
    "pcie_tx_mb_per_s",
    "pcie_rx_mb_per_s",
)
_READ_AS = {
    "gpu_util_pct": "util_pct",
    "gpu_mem_used_gib": "mem_used_gib",
    "foreign_pids": "processes",
}
"""Fields of Telemetry whose reading has another name in GpuSample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the host."""

    time: float
    """Epoch seconds."""
    cpu_busy_s: float | None = None
    """Counter of CPU seconds spent on the CPUs we may use."""
    gpu: GpuSample | None = None
    own_pids: tuple[int, ...] = ()
    """Those of `gpu.processes` that belong to the watched program."""
    hidden_pids: tuple[int, ...] = ()
    """Those that do not exist in our process id namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Samples of one card and its host."""

    samples: tuple[Sample, ...]
    cpus: int
    """CPUs that `Sample.cpu_busy_s` may fill."""
    gpu_name: str | None = None
    gpu_uuid: str | None = None
    no_gpu: str | None = None
    """Why no GPU was watched."""
    gaps: tuple[tuple[str, str], ...] = ()
    """Field of a sample, and the reason it is missing."""
    origin: str = "live"
    """Source of the readings: a real driver, or a stub library."""

    def summary(self, window_start: float, window_end: float) -> Telemetry:
        """Means over the window; gaps carry a reason."""
        return _Window(self, window_start, window_end).summary()

    def save(self, path: Path) -> None:
        """Write the recording; `load` gives it back."""
        header = {
            "format": FORMAT,
            "origin": self.origin,
            "cpus": self.cpus,
            "gpu_name": self.gpu_name,
            "gpu_uuid": self.gpu_uuid,
            "no_gpu": self.no_gpu,
            "gaps": dict(self.gaps),
        }
        lines = [header, *(_dense(asdict(sample)) for sample in self.samples)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def load(path: Path) -> Recording:
    """Load a saved recording. Raises ValueError."""
    try:
        header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if header.pop("format") != FORMAT:
            msg = f"format is not {FORMAT}"
            raise ValueError(msg)
        gaps = tuple(header.pop("gaps").items())
        return Recording(samples=tuple(map(_sample, lines)), gaps=gaps, **header)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        msg = f"{path} is no telemetry recording of format {FORMAT}: {problem}"
        raise ValueError(msg) from problem


def _dense(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _dense(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None and (key == "processes" or value != ())
    }


def _sample(table: dict[str, Any]) -> Sample:
    gpu = table.pop("gpu", None)
    if gpu is not None:
        listed = gpu.pop("processes", None)
        processes = None if listed is None else tuple(GpuProcess(**entry) for entry in listed)
        working = gpu.pop("working_pids", None)
        gpu = GpuSample(
            processes=processes, working_pids=None if working is None else tuple(working), **gpu
        )
    own, hidden = table.pop("own_pids", ()), table.pop("hidden_pids", ())
    return Sample(gpu=gpu, own_pids=tuple(own), hidden_pids=tuple(hidden), **table)


# --- a window -----------------------------------------------------------------------------


class _Window:
    """The samples of one window, reduced."""

    def __init__(self, recording: Recording, start: float, end: float) -> None:
        self.recording = recording
        self.start, self.end = start, end
        self.samples = [s for s in recording.samples if start <= s.time <= end]
        self.gpu_samples = [s for s in self.samples if s.gpu is not None]
        self.gaps: dict[str, str] = {}

    def summary(self) -> Telemetry:
        telemetry = Telemetry(
            samples=len(self.samples),
            cpu_util_pct=self._cpu_util_pct(),
        )
        if self.recording.no_gpu is not None:
            self.gaps |= dict.fromkeys(_GPU_FIELDS, self.recording.no_gpu)
        else:
            telemetry = self._with_gpu(telemetry)
        return replace(telemetry, gaps=tuple(sorted(self.gaps.items())))

    def _with_gpu(self, telemetry: Telemetry) -> Telemetry:
        busy = self._busy()
        loaded = self.gpu_samples if busy is None else busy
        clocks = _values(loaded, lambda gpu: gpu.sm_clock_mhz)
        return replace(
            telemetry,
            gpu_util_pct=self._lagging("gpu_util_pct", lambda gpu: gpu.util_pct),
            gpu_mem_used_gib=self._reduce("gpu_mem_used_gib", lambda gpu: gpu.mem_used_gib, max),
            power_w=self._lagging("power_w", lambda gpu: gpu.power_w),
            energy_j=self._energy_j(),
            sm_clock_mhz=self._reduce(
                "sm_clock_mhz", lambda gpu: gpu.sm_clock_mhz, statistics.median, loaded
            ),
            sm_clock_spread_pct=_spread_pct(clocks),
            mem_clock_mhz=self._reduce(
                "mem_clock_mhz", lambda gpu: gpu.mem_clock_mhz, statistics.median, loaded
            ),
            temperature_c=self._reduce("temperature_c", lambda gpu: gpu.temperature_c, max),
            event_reasons=self._event_reasons(loaded),
            busy_samples=None if busy is None else len(busy),
            gpu_mem_others_gib=self._held_by_others_gib(),
            foreign_pids=self._foreign_pids(),
            pcie_tx_mb_per_s=self._reduce("pcie_tx_mb_per_s", lambda gpu: gpu.pcie_tx_mb_per_s),
            pcie_rx_mb_per_s=self._reduce("pcie_rx_mb_per_s", lambda gpu: gpu.pcie_rx_mb_per_s),
        )

    def _reduce(
        self,
        field: str,
        get: Callable[[GpuSample], float | None],
        how: Callable[[Sequence[float]], float] = statistics.fmean,
        samples: Sequence[Sample] | None = None,
    ) -> float | None:
        values = _values(self.gpu_samples if samples is None else samples, get)
        if values:
            return how(values)
        self._miss(field)
        return None

    def _lagging(self, field: str, get: Callable[[GpuSample], float | None]) -> float | None:
        """Mean of a delayed reading inside the window."""
        settled = [s for s in self.gpu_samples if s.time >= self.start + LAG_S]
        if not settled and _values(self.gpu_samples, get):
            length = self.end - self.start
            self.gaps[field] = (
                f"the window of {length:.1f} s is no longer than the {LAG_S:g} s "
                "over which the driver averages"
            )
            return None
        return self._reduce(field, get, samples=settled)

    def _busy(self) -> list[Sample] | None:
        """Samples with GPU work, or None."""
        known = [(s, _is_busy(s.gpu)) for s in self.gpu_samples if s.gpu is not None]
        if all(busy is None for _, busy in known):
            return None
        return [sample for sample, busy in known if busy]

    def _event_reasons(self, loaded: Sequence[Sample]) -> tuple[tuple[str, float], ...]:
        """Share of busy samples with each event reason."""
        masks = [s.gpu.event_reasons for s in loaded if s.gpu and s.gpu.event_reasons is not None]
        every = [
            s.gpu.event_reasons
            for s in self.gpu_samples
            if s.gpu and s.gpu.event_reasons is not None
        ]
        if not every:
            self._miss("event_reasons")
            return ()
        shares = []
        for bit, name in EVENT_REASONS.items():
            among = every if bit == _IDLE else masks
            hits = sum(1 for mask in among if mask & bit)
            if hits:
                shares.append((name, hits / len(among)))
        return tuple(shares)

    def _foreign_pids(self) -> int | None:
        """Count other processes with kernels on the GPU.

        A context that only holds memory, such as a notebook's, does not count. A driver may list
        ids of the host while we live in a container: unless one id is known as ours, others cannot
        be distinguished from ours. Under WSL2 it lists no process.
        """
        listed = [s for s in self.gpu_samples if s.gpu and s.gpu.processes is not None]
        if not listed:
            self._miss("foreign_pids")
            return None
        own = {pid for s in self.recording.samples for pid in s.own_pids}
        hidden: list[int] = [pid for s in listed for pid in s.hidden_pids]
        every = {process.pid for s in listed if s.gpu for process in s.gpu.processes or ()}
        if hidden and not own:
            self.gaps["foreign_pids"] = (
                f"the driver lists {len(set(hidden))} process ids of another namespace "
                "(a container), so ours cannot be told from others'"
            )
            return None
        if not every and not own and self._busy():
            self.gaps["foreign_pids"] = "the GPU was at work but the driver lists no process on it"
            return None
        working = {pid for s in listed if s.gpu for pid in s.gpu.working_pids or ()}
        if every - own and not working and self._busy():
            self.gaps["foreign_pids"] = "the driver does not say which process ran kernels"
            return None
        every &= working
        passing = {pid for pid in hidden if hidden.count(pid) == 1 and len(listed) > 1}
        return len(every - own - passing)

    def _held_by_others_gib(self) -> float | None:
        """Peak memory held by other processes, or None."""
        own = {pid for s in self.recording.samples for pid in s.own_pids}
        held = []
        for sample in self.gpu_samples:
            listed = sample.gpu.processes if sample.gpu else None
            if listed is None or sample.hidden_pids:
                continue
            others = [each.memory_gib for each in listed if each.pid not in own]
            if None not in others:
                held.append(sum(filter(None, others)))
        return max(held, default=None)

    def _energy_j(self) -> float | None:
        if self.end - self.start < COUNTER_WINDOW_S:
            if _values(self.gpu_samples, lambda gpu: gpu.energy_j):
                self.gaps["energy_j"] = (
                    f"the window is shorter than {COUNTER_WINDOW_S:g} s, "
                    "too short for the energy counter"
                )
            else:
                self._miss("energy_j")
            return None
        points = [
            (s.time, s.gpu.energy_j)
            for s in self.recording.samples
            if s.gpu and s.gpu.energy_j is not None
        ]
        return self._counter("energy_j", points)

    def _cpu_util_pct(self) -> float | None:
        points = [
            (s.time, s.cpu_busy_s) for s in self.recording.samples if s.cpu_busy_s is not None
        ]
        busy_s = self._counter("cpu_util_pct", points)
        if busy_s is None or self.end <= self.start:
            return None
        return min(100.0, 100 * busy_s / ((self.end - self.start) * self.recording.cpus))

    def _counter(self, field: str, points: list[tuple[float, float]]) -> float | None:
        """Interpolated counter growth over the window."""
        if len(points) < 2:
            self._miss(field)
            return None
        first, last = max(self.start, points[0][0]), min(self.end, points[-1][0])
        covered = (last - first) / (self.end - self.start) if self.end > self.start else 0.0
        if covered < COVERED:
            self.gaps[field] = f"samples span only {max(0.0, covered):.0%} of the window"
            return None
        inside = [value for time, value in points if first <= time <= last]
        ends = [_at(points, first), *inside, _at(points, last)]
        if any(later < earlier for earlier, later in itertools.pairwise(ends)):
            self.gaps[field] = "its counter ran backwards inside the window"
            return None
        return (ends[-1] - ends[0]) / covered

    def _miss(self, field: str) -> None:
        """Note why no value of `field` is there."""
        reason = dict(self.recording.gaps).get(_READ_AS.get(field, field))
        if reason is None and not self.samples:
            reason = "no sample fell into the window"
        elif reason is None and field.endswith("_clock_mhz"):
            reason = "the GPU was idle through the window"
        self.gaps[field] = reason or "it was not read inside the window"


def _values(samples: Sequence[Sample], get: Callable[[GpuSample], float | None]) -> list[float]:
    found = (get(sample.gpu) for sample in samples if sample.gpu is not None)
    return [value for value in found if value is not None]


def _is_busy(gpu: GpuSample) -> bool | None:
    if gpu.util_pct is not None:
        return gpu.util_pct > 0
    if gpu.event_reasons is not None:
        return not gpu.event_reasons & _IDLE
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
