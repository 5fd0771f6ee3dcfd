"""Access to NVML and visible GPUs, or why there is none."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.machine import profiles
from advisor.machine.readings import GIB, Device, optional, read_memory
from advisor.model import Gpu

ROOT = Path("/")
CU_INIT_LIMIT_S = 20.0
"""Longest wait in seconds for the driver to start in a process of its own: a broken one may hang.

Judgement: shorter gives up on a host of many cards, which starts for seconds. Longer holds up each
call where it hangs."""
NO_DRIVER = "No NVIDIA driver is installed on this host (libnvidia-ml.so.1 was not found)."


def read_gpus(
    environ: Mapping[str, str] = os.environ,
) -> tuple[tuple[Gpu, ...], str | None]:
    """Read the visible GPUs in CUDA's order, or why none is."""
    nvml, devices, note = shown_devices(environ)
    return tuple(describe(nvml, device) for device in devices), note


def shown_devices(environ: Mapping[str, str]) -> tuple[Any, list[Device], str | None]:
    """Pynvml, devices visible to CUDA, and why there is none."""
    nvml, note = _load()
    if nvml is None:
        return None, [], note
    devices, note = _devices(nvml)
    if not devices:
        return nvml, [], note
    return nvml, *_visible(devices, environ)


UVM, WSL = "dev/nvidia-uvm", "dev/dxg"
"""Device file that CUDA needs; and that of WSL2, where the former never exists."""
_tried: set[Path] = set()
"""Roots below which CUDA was started for its device file."""
CU_INIT = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"


def uvm_loaded(root: Path = ROOT) -> bool:
    """Return True if CUDA has its device file, or needs none."""
    return (root / UVM).exists() or (root / WSL).exists()


def load_uvm(root: Path = ROOT) -> None:
    """Load the UVM driver by one cuInit in its own process.

    Its set-uid helper does nothing in a user namespace: a sandbox shows no device. Where one
    cuInit made no file, as in a container that is given the cards otherwise, none ever will.
    """
    nvml, _ = _load()
    if uvm_loaded(root) or root in _tried or nvml is None or not _devices(nvml)[0]:
        return
    _tried.add(root)
    words = [sys.executable, "-I", "-S", "-c", CU_INIT]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(words, capture_output=True, check=False, timeout=CU_INIT_LIMIT_S)


@functools.cache
def _load() -> tuple[Any, str | None]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        if problem.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return None, NO_DRIVER
        return None, f"NVML could not be started: {problem}. nvidia-smi says why."
    return pynvml, None


def _devices(nvml: Any) -> tuple[list[Device], str | None]:
    devices: list[Device] = []
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
        uuid = optional(nvml, nvml.nvmlDeviceGetUUID, handle)
        card = Device(index=index, handle=handle, uuid=uuid, mig=_mig_mode(nvml, handle))
        devices += (_slices(nvml, card) if card.mig else []) or [card]
    return devices, None if devices else note


def _mig_mode(nvml: Any, handle: Any) -> bool | None:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as problem:
        return False if problem.value == nvml.NVML_ERROR_NOT_SUPPORTED else None
    return bool(current)


def _slices(nvml: Any, card: Device) -> list[Device]:
    ask = functools.partial(optional, nvml)
    slices = []
    for position in range(ask(nvml.nvmlDeviceGetMaxMigDeviceCount, card.handle) or 0):
        handle = ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, position)
        if handle is not None:
            uuid = ask(nvml.nvmlDeviceGetUUID, handle)
            slices.append(Device(index=card.index, handle=handle, uuid=uuid, mig=True))
    return slices


def _visible(
    devices: list[Device], environ: Mapping[str, str]
) -> tuple[list[Device], str | None]:
    """Devices that CUDA_VISIBLE_DEVICES leaves, by CUDA's rules.

    Entries are indices or (prefixes of) UUIDs; the first invalid one ends the list. Without
    CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA may number cards by speed, NVML does by bus.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return devices, None
    chosen: list[Device] = []
    for entry in text.split(","):
        hits = _named(devices, entry.strip())
        if not hits:
            break
        chosen.append(hits[0])
    count = len(devices)
    note = f"CUDA_VISIBLE_DEVICES={text!r} hides the {count} GPU{'s' * (count > 1)} of this host."
    return chosen, None if chosen else note


def _named(devices: list[Device], entry: str) -> list[Device]:
    if entry.startswith(("GPU-", "MIG-")):
        hits = [device for device in devices if (device.uuid or "").startswith(entry)]
        return hits if len(hits) == 1 else []
    return [device for device in devices if entry == str(device.index)]


def describe(nvml: Any, device: Device) -> Gpu:
    name = optional(nvml, nvml.nvmlDeviceGetName, device.handle) or "unknown NVIDIA GPU"
    memory = optional(nvml, read_memory, nvml, device.handle)
    total_gib = memory.total / GIB if memory else None
    limit_mw = optional(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, device.handle)
    capability = optional(nvml, nvml.nvmlDeviceGetCudaComputeCapability, device.handle)
    profile = None if device.mig else profiles.match(name, total_gib)
    return Gpu(
        index=device.index,
        name=name,
        uuid=device.uuid,
        memory_total_gib=total_gib,
        memory_free_gib=memory.free / GIB if memory else None,
        driver=optional(nvml, nvml.nvmlSystemGetDriverVersion),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        compute_capability=None
        if capability is None
        else f"{capability[0]}.{capability[1]}",
        profile=profile.name if profile else None,
        mig=device.mig,
    )
