"""The one door to NVML (module `pynvml`, distribution `nvidia-ml-py`).

Nothing here raises for what a driver, a card or a container withholds: every reading is a value,
or `None` with the reason in one plain sentence.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advisor.machine import profiles
from advisor.model import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GIB = 2**30

EVENT_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
"""NVML clock event (throttle) reasons, by bit."""

HARMFUL_EVENT_REASONS = frozenset(EVENT_REASONS[bit] for bit in (0x8, 0x20, 0x40, 0x80))
"""Those that make a measurement invalid. A power cap is the normal state of a busy small card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds a compute context, by the process id NVML gives."""

    pid: int
    memory_gib: float | None
    """None under WSL2 and on Windows display drivers, where NVML does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One look at one GPU. None: withheld, or a slow reading that was not due."""

    util_pct: float | None = None
    """Share of the driver's last sample period (1/6 to 1 s) with a kernel running."""
    mem_used_gib: float | None = None
    mem_reserved_gib: float | None = None
    """Held by the driver itself; older drivers count it into `mem_used_gib`."""
    power_w: float | None = None
    """A one second average on most cards since Ampere."""
    power_limit_w: float | None = None
    energy_j: float | None = None
    """Counter since the driver was loaded."""
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    temperature_c: float | None = None
    event_reasons: int | None = None
    """Bits of EVENT_REASONS."""
    pcie_tx_mb_per_s: float | None = None
    pcie_rx_mb_per_s: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


def read_gpus(
    environ: Mapping[str, str] | None = None,
) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that CUDA shows a program under `environ` (default: ours), in CUDA's order.

    Returns them with `Gpu.index` as NVML counts, and None; or nothing and the reason.
    """
    nvml, note = _load()
    if nvml is None:
        return (), note
    devices, note = _devices(nvml)
    if not devices:
        return (), note
    shown, note = _visible(devices, os.environ if environ is None else environ)
    return tuple(_describe(nvml, device) for device in shown), note


class GpuReader:
    """Reads one GPU again and again, cheaply; what it withholds is asked for only once."""

    def __init__(self, device: _Device, nvml: Any) -> None:
        self._device = device
        self._nvml = nvml
        self._pending = list(_READINGS)
        self.gaps: dict[str, str] = {}
        """Field of GpuSample, and why it is missing."""

    @property
    def name(self) -> str | None:
        name: str | None = _optional(self._nvml.nvmlDeviceGetName, self._device.handle)
        return name

    @property
    def uuid(self) -> str | None:
        return self._device.uuid

    def sample(self, *, slow: bool = True) -> GpuSample:
        """One sample; `slow` readings (PCIe, processes) take some 20 ms each on a real card."""
        values: dict[str, Any] = {}
        for reading in [r for r in self._pending if slow or not r.slow]:
            try:
                values |= zip(
                    reading.fields, reading.read(self._nvml, self._device.handle), strict=True
                )
            except self._nvml.NVMLError as problem:
                reason = _reason(self._nvml, problem, self._device)
                self.gaps |= dict.fromkeys(reading.fields, reason)
                if _lasts(self._nvml, problem):
                    self._pending.remove(reading)
        return GpuSample(**values)


def open_reader(
    index: int | None = None, environ: Mapping[str, str] | None = None
) -> tuple[GpuReader | None, str | None]:
    """A reader of the GPU with this NVML index, or of the first one a program is shown.

    Returns None and the reason where there is no such GPU.
    """
    nvml, note = _load()
    if nvml is None:
        return None, note
    devices, note = _devices(nvml)
    shown, hidden = _visible(devices, os.environ if environ is None else environ)
    if index is not None:
        wanted = [device for device in (*shown, *devices) if device.index == index]
        note = note or f"NVML lists no GPU with index {index}."
    else:
        wanted = shown
        note = note or hidden
    return (GpuReader(wanted[0], nvml), None) if wanted else (None, note)


# --- the library --------------------------------------------------------------------------


@functools.cache
def _load() -> tuple[Any, str | None]:
    """The initialised pynvml module, or None and the reason. Asked once a process."""
    try:
        import pynvml
    except ImportError:
        return None, "The Python package nvidia-ml-py is not installed: pip install nvidia-ml-py."
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        return None, (
            f"The module pynvml at {pynvml.__file__} is not NVIDIA's own: "
            "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py."
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return None, _no_nvml(pynvml, problem)
    return pynvml, None


def _no_nvml(nvml: Any, problem: Any) -> str:
    notes = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "No NVIDIA driver is installed on this host "
        "(libnvidia-ml.so.1 was not found).",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "The NVIDIA driver is installed but not loaded; "
        "nvidia-smi says why.",
        nvml.NVML_ERROR_NO_PERMISSION: "The NVIDIA driver denies this user access to the GPU.",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The NVIDIA driver was updated while its old "
        "kernel module is still loaded; reboot to use the GPU.",
    }
    return notes.get(problem.value) or f"NVML could not be started: {problem}."


# --- devices ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """A card, or one MIG slice of it."""

    index: int
    handle: Any
    uuid: str | None
    mig: bool | None
    """Whether MIG is on; for a card without MIG support False, None where NVML does not say."""
    parent_uuid: str | None = None
    """UUID of the card, for a slice."""


def _devices(nvml: Any) -> tuple[list[_Device], str | None]:
    """Every GPU in NVML's order; a card cut into MIG slices appears as its slices."""
    found: list[_Device] = []
    note = "The NVIDIA driver is loaded but lists no GPU."
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as problem:
        return [], f"NVML could not list the GPUs: {problem}."
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as problem:
            note = f"GPU {index} could not be opened: {problem}."
            continue
        mig = _mig_mode(nvml, handle)
        card = _Device(
            index=index, handle=handle, uuid=_optional(nvml.nvmlDeviceGetUUID, handle), mig=mig
        )
        found += (_slices(nvml, card) if mig else []) or [card]
    return found, None if found else note


def _mig_mode(nvml: Any, handle: Any) -> bool | None:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as problem:
        return False if problem.value == nvml.NVML_ERROR_NOT_SUPPORTED else None
    return bool(current)


def _slices(nvml: Any, card: _Device) -> list[_Device]:
    slices = []
    for position in range(_optional(nvml.nvmlDeviceGetMaxMigDeviceCount, card.handle) or 0):
        handle = _optional(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, position)
        if handle is not None:
            uuid = _optional(nvml.nvmlDeviceGetUUID, handle)
            slices.append(
                _Device(index=card.index, handle=handle, uuid=uuid, mig=True, parent_uuid=card.uuid)
            )
    return slices


def _visible(
    devices: list[_Device], environ: Mapping[str, str]
) -> tuple[list[_Device], str | None]:
    """The devices CUDA_VISIBLE_DEVICES leaves, by CUDA's own rules.

    Entries are NVML indices or (prefixes of) UUIDs; the first invalid entry ends the list and a
    repeated one empties it. CUDA may number unlike cards by speed unless CUDA_DEVICE_ORDER is
    PCI_BUS_ID, NVML always numbers them by bus.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return devices, None
    chosen: list[_Device] = []
    for entry in text.split(","):
        hits = _named(devices, entry.strip())
        if not hits:
            break
        if hits[0] in chosen:
            chosen = []
            break
        chosen.append(hits[0])
    count = len(devices)
    note = f"CUDA_VISIBLE_DEVICES={text!r} hides the {count} GPU{'s' * (count > 1)} of this host."
    return chosen, None if chosen else note


def _named(devices: list[_Device], entry: str) -> list[_Device]:
    if entry.startswith(("GPU-", "MIG-")):
        hits = [device for device in devices if (device.uuid or "").startswith(entry)]
        return hits if len(hits) == 1 else []
    number = re.match(r"\d+", entry)
    return [device for device in devices if number and device.index == int(number[0])]


def _describe(nvml: Any, device: _Device) -> Gpu:
    name = _optional(nvml.nvmlDeviceGetName, device.handle) or "unknown NVIDIA GPU"
    memory = _optional(_memory, nvml, device.handle)
    total_gib = memory.total_gib if memory else None
    limit_mw = _optional(nvml.nvmlDeviceGetEnforcedPowerLimit, device.handle)
    capability = _optional(nvml.nvmlDeviceGetCudaComputeCapability, device.handle)
    profile = None if device.mig else profiles.match(name, total_gib)
    return Gpu(
        index=device.index,
        name=name,
        uuid=device.uuid,
        memory_total_gib=total_gib,
        memory_free_gib=memory.free_gib if memory else None,
        driver=_optional(nvml.nvmlSystemGetDriverVersion),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        profile=profile.name if profile else None,
        mig=device.mig,
    )


# --- readings -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    total_gib: float
    free_gib: float
    used_gib: float
    reserved_gib: float | None


def _memory(nvml: Any, handle: Any) -> _Memory:
    """Memory with the driver's own share apart where the driver knows version 2 of the call."""
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        reserved = info.reserved / GIB
    except (AttributeError, nvml.NVMLError):
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        reserved = None
    return _Memory(
        total_gib=info.total / GIB,
        free_gib=info.free / GIB,
        used_gib=info.used / GIB,
        reserved_gib=reserved,
    )


def _memory_fields(nvml: Any, handle: Any) -> tuple[float, float | None]:
    memory = _memory(nvml, handle)
    return memory.used_gib, memory.reserved_gib


def _event_reasons(nvml: Any, handle: Any) -> tuple[int]:
    """Under its new name where driver and binding know it, else under the old one."""
    try:
        return (nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),)
    except (AttributeError, nvml.NVMLError_FunctionNotFound):
        return (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),)


def _processes(nvml: Any, handle: Any) -> tuple[tuple[GpuProcess, ...]]:
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return (
        tuple(
            GpuProcess(
                pid=process.pid,
                memory_gib=None if process.usedGpuMemory is None else process.usedGpuMemory / GIB,
            )
            for process in listed
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    fields: tuple[str, ...]
    read: Callable[[Any, Any], tuple[Any, ...]]
    slow: bool = False


_READINGS = (  # fast ones first, so that a sample's time is theirs
    _Reading(
        fields=("util_pct",), read=lambda n, h: (float(n.nvmlDeviceGetUtilizationRates(h).gpu),)
    ),
    _Reading(fields=("mem_used_gib", "mem_reserved_gib"), read=_memory_fields),
    _Reading(fields=("power_w",), read=lambda n, h: (n.nvmlDeviceGetPowerUsage(h) / 1000,)),
    _Reading(
        fields=("energy_j",), read=lambda n, h: (n.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,)
    ),
    _Reading(
        fields=("sm_clock_mhz",),
        read=lambda n, h: (float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),),
    ),
    _Reading(
        fields=("mem_clock_mhz",),
        read=lambda n, h: (float(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),),
    ),
    _Reading(
        fields=("temperature_c",),
        read=lambda n, h: (float(n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),),
    ),
    _Reading(fields=("event_reasons",), read=_event_reasons),
    _Reading(
        fields=("power_limit_w",),
        read=lambda n, h: (n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,),
        slow=True,
    ),
    _Reading(
        fields=("pcie_tx_mb_per_s",),
        read=lambda n, h: (n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES) / 1000,),
        slow=True,
    ),
    _Reading(
        fields=("pcie_rx_mb_per_s",),
        read=lambda n, h: (n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES) / 1000,),
        slow=True,
    ),
    _Reading(fields=("processes",), read=_processes, slow=True),
)


def _optional(call: Callable[..., Any], *args: Any) -> Any:
    """What `call` returns, or None where NVML cannot say."""
    import pynvml

    try:
        return call(*args)
    except pynvml.NVMLError:
        return None


def _lasts(nvml: Any, problem: Any) -> bool:
    """Whether asking again is pointless."""
    return problem.value in {
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    }


def _reason(nvml: Any, problem: Any, device: _Device) -> str:
    """Why a reading is missing, for a person."""
    unsupported = "not supported by this GPU or driver"
    if device.mig:
        unsupported = "not available while the card is cut into MIG slices"
    elif on_wsl():
        unsupported = "not available under WSL2"
    reasons = {
        nvml.NVML_ERROR_NOT_SUPPORTED: unsupported,
        nvml.NVML_ERROR_NO_PERMISSION: "the driver denies it to this user",
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the installed driver is too old to know it",
        nvml.NVML_ERROR_GPU_IS_LOST: "the GPU no longer answers (fallen off the bus)",
    }
    return reasons.get(problem.value) or f"NVML error: {problem}"


def on_wsl() -> bool:
    """Whether this Linux runs inside Windows."""
    return "microsoft" in platform.uname().release.lower()
