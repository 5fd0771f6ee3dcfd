"""Card condition: settings, link and clocks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.machine.gpu import describe, shown_devices
from advisor.machine.host import text_of
from advisor.machine.readings import GpuReader, GpuSample, optional

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from advisor.machine.readings import Device
    from advisor.model import Gpu

ROOT = Path("/")
NVIDIA = "0x10de"
"""PCI vendor."""
DISPLAY = "0x03"
"""Start of the PCI class of graphics and 3D controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCondition:
    """Condition of one card or MIG slice."""

    gpu: Gpu
    now: GpuSample
    cuda_driver: str | None = None
    """Newest CUDA that the driver runs: `12.6`."""
    power_default_w: float | None = None
    sm_clock_max_mhz: float | None = None
    pcie_generation: int | None = None
    """As the link is now: it sleeps at 1 while the card is idle."""
    pcie_generation_max: int | None = None
    """Limit of card and slot together."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None


def read_conditions(
    environ: Mapping[str, str] | None = None,
) -> tuple[tuple[CardCondition, ...], str | None]:
    """Read visible GPUs under `environ`, or the reason."""
    nvml, devices, note = shown_devices(os.environ if environ is None else environ)
    return tuple(_condition(nvml, device) for device in devices), note


def nvidia_devices(root: Path = ROOT) -> int | None:
    """Count NVIDIA cards on the PCI bus, or None."""
    try:
        found = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(
        text_of(each / "vendor") == NVIDIA and text_of(each / "class").startswith(DISPLAY)
        for each in found
    )


def _condition(nvml: Any, device: Device) -> CardCondition:
    def ask(call: Callable[..., Any], *args: Any) -> Any:
        return optional(nvml, call, device.handle, *args)

    cuda = optional(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    default_mw = ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit)
    clock = ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)
    return CardCondition(
        gpu=describe(nvml, device),
        now=GpuReader(device, nvml).sample(),
        cuda_driver=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        power_default_w=None if default_mw is None else default_mw / 1000,
        sm_clock_max_mhz=None if clock is None else float(clock),
        pcie_generation=ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration),
        pcie_generation_max=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
        pcie_width=ask(nvml.nvmlDeviceGetCurrPcieLinkWidth),
        pcie_width_max=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth),
    )
