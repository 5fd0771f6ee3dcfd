"""Readings of one GPU, with reasons for gaps."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

GIB = 2**30

WORKING_S = 1.5
"""Look back in seconds for who ran kernels: past the slow reading before.

Judgement: below `recording.SLOW_INTERVAL_S` work between two readings is missed. Longer blames a
program that ended before the window."""
WORKING_PCT = 5
"""A process with less of the multiprocessors in percent, like a desktop's, is idle.

Judgement: too small makes every screen a disturber, too large misses a small job beside a run."""

SOFTWARE_THERMAL = "software thermal slowdown"
EVENT_REASONS = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: SOFTWARE_THERMAL,
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
"""NVML clock event (throttle) reasons, by bit."""

HARMFUL_EVENT_REASONS = frozenset(EVENT_REASONS[bit] for bit in (0x8, 0x20, 0x40, 0x80))
"""Clock event reasons that spoil a measurement. A power cap is normal on a busy small card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """GPU sample; None for missing or skipped readings."""

    time: float = 0.0
    """Epoch seconds of `clock.now`."""
    gpu_util_pct: float | None = None
    """Share of the driver's last period (1/6 to 1 s) with a kernel running."""
    gpu_mem_used_gib: float | None = None
    power_w: float | None = None
    """A one second average on most cards since Ampere."""
    energy_j: float | None = None
    """Counter since the driver was loaded."""
    sm_clock_mhz: float | None = None
    event_reasons: int | None = None
    """Bits of EVENT_REASONS."""
    processes: Mapping[int, float | None] | None = None
    """Processes with a compute context, and their GiB; unknown to NVML under WSL2."""
    own_pids: tuple[int, ...] = ()
    """Processes of the watched program, among `processes`."""
    hidden_pids: tuple[int, ...] = ()
    """Processes outside our process id namespace."""
    working_pids: tuple[int, ...] | None = None
    """Processes that ran kernels just now; empty also if the driver names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card, or one MIG slice of it."""

    index: int
    handle: Any
    uuid: str | None
    mig: bool | None
    """True with MIG on, False without MIG support, None if unknown."""


class GpuReader:
    """Reader of one card: its figures, and why the driver withholds others."""

    def __init__(self, device: Device, nvml: Any) -> None:
        self._device = device
        self._nvml = nvml
        self.uuid = device.uuid
        self.gaps: dict[str, str] = {}
        self.samples: list[GpuSample] = []

    def memory_gib(self) -> float | None:
        """All memory of the card."""
        memory = optional(self._nvml, read_memory, self._nvml, self._device.handle)
        return memory.total / GIB if memory else None

    def sample(self, *, slow: bool = True) -> GpuSample:
        """Take one sample; `slow` adds the processes."""
        values: dict[str, Any] = {}
        for field in [reading for reading in READINGS if slow or reading not in _SLOW]:
            try:
                values[field] = READINGS[field](self._nvml, self._device.handle)
            except self._nvml.NVMLError as problem:
                self.gaps[field] = f"the driver says: {problem}"
        return GpuSample(**values)


def optional(nvml: Any, call: Callable[..., T], *args: Any) -> T | None:
    """An NVML call's result, or None."""
    try:
        return call(*args)
    except nvml.NVMLError:
        return None


def read_memory(nvml: Any, handle: Any) -> Any:
    """Read bytes (total, free, used), if possible without the driver's share."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _processes(nvml: Any, handle: Any) -> dict[int, float | None]:
    # versioned: an old driver's plain call raises what is no NVMLError
    listed = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    sizes = {process.pid: process.usedGpuMemory for process in listed}
    return {pid: None if size is None else size / GIB for pid, size in sizes.items()}


def _working_pids(nvml: Any, handle: Any) -> tuple[int, ...]:
    since_us = int((time.time() - WORKING_S) * 1e6)
    try:
        reported = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except nvml.NVMLError as problem:
        if problem.value in {nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND}:
            return ()  # no process, or no sample
        raise
    return tuple(sorted({entry.pid for entry in reported if entry.smUtil >= WORKING_PCT}))


READINGS: dict[str, Callable[[Any, Any], Any]] = {
    "gpu_util_pct": lambda n, h: float(n.nvmlDeviceGetUtilizationRates(h).gpu),
    "gpu_mem_used_gib": lambda n, h: read_memory(n, h).used / GIB,
    "power_w": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000,
    "energy_j": lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
    "sm_clock_mhz": lambda n, h: float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
    # the older name, known to every driver
    "event_reasons": lambda n, h: int(n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
    "processes": _processes,
    "working_pids": _working_pids,
}
"""Call of each field of GpuSample; fast ones first: a sample's time is theirs."""
_SLOW = ("processes", "working_pids")
