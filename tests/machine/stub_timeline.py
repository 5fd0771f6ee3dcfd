"""A scripted stretch of a GPU's life, sampled through the real pynvml."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nvml_stub

from advisor.machine.telemetry import Sampler

if TYPE_CHECKING:
    from advisor.machine.recording import Recording

BUSY_S, TICK_S, POWER_W = 3.0, 0.1, 600.0
NOT_HERE = 2**30
"""A process id above any kernel's limit: one of another namespace."""


def play(folder: str) -> tuple[Recording, float, float]:
    """Idle, then BUSY_S of work, warm and power-capped; the recording and the busy window.

    On the card: one process of the watched program's, one stranger's, one that stays hidden.
    """
    stub = nvml_stub.NvmlStub(Path(folder))
    energy_j = 5000.0
    stub.write(nvml_stub.H100, util=0, events=1, power=80_000, energy=energy_j * 1000)
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as own,
        Sampler(pids=[own.pid], interval_s=0.05, environ={}) as sampler,
    ):
        time.sleep(0.8)
        start = energy_since = time.time()
        while (now := time.time()) < start + BUSY_S:
            energy_j += POWER_W * (now - energy_since)
            energy_since = now
            late = now > start + BUSY_S / 2
            stub.write(
                nvml_stub.H100,
                {"memory.used": (30 if late else 10) * nvml_stub.GIB, "clock.sm": 1700},
                energy=round(energy_j * 1000),
                power=round(POWER_W * 1000),
                events=0x24 if late else 0x4,
                temperature=84 if late else 60,
                processes=f"{own.pid}:1000,{os.getppid()}:-,{NOT_HERE}:1000",
                working=f"{own.pid}:80,{os.getppid()}:50,{NOT_HERE}:50",
            )
            time.sleep(TICK_S)
        end = time.time()
        time.sleep(0.2)
        own.communicate(b"\n")
    return sampler.recording(), start, end
