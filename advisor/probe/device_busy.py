"""Busy share of the card: a few steps under torch.profiler.

Between its launches a card works unseen by marks at the ends of steps. The profiler sees each
kernel, and slows the host, so the share that it finds is the least one.
"""

from __future__ import annotations

import importlib
import time
from typing import Any, Iterable

from .session import Session

STEPS, SECONDS = 5, 2.0
"""Profiled steps, or as many as take this long."""
NO_KERNELS = ("Memcpy", "Memset")
"""Beginnings of the names of work that computes nothing."""

clock = time.perf_counter


class DeviceBusy:
    """Share of a few steps in which kernels ran on the card."""

    def __init__(self, session: Session) -> None:
        self._device = session.device
        self._steps = 0
        self._start = 0.0
        profiler: Any = importlib.import_module("torch.profiler")
        self._profile = profiler.profile(activities=[profiler.ProfilerActivity.CUDA])

    def begin(self) -> None:
        """Watch the card from an idle moment on."""
        self._profile.start()
        self._device.synchronize()
        self._start = clock()

    def is_over(self) -> bool:
        """Count a step; return True after enough of them."""
        self._steps += 1
        return self._steps >= STEPS or clock() - self._start > SECONDS

    def end(self) -> float:
        """Stop watching; return the busy share."""
        self._device.synchronize()
        seconds = clock() - self._start
        self._profile.stop()
        kernels = filter(_is_kernel, self._profile.profiler.kineto_results.events())
        return min(1.0, _covered(map(_span, kernels)) / seconds)


def _is_kernel(event: Any) -> bool:
    annotation = getattr(event, "is_user_annotation", bool)()
    on_card = str(event.device_type()).endswith("CUDA")
    return on_card and not annotation and not event.name().startswith(NO_KERNELS)


def _span(event: Any) -> tuple[float, float]:
    """Start and end in seconds; torch before 2.2 counts microseconds."""
    if hasattr(event, "start_ns"):
        start, length = event.start_ns() / 1e9, event.duration_ns() / 1e9
    else:
        start, length = event.start_us() / 1e6, event.duration_us() / 1e6
    return start, start + length


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in the spans, of which several streams may overlap."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
