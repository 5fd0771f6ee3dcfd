"""When the device was done with each step, by CUDA events; nothing waits until the end.

The host runs ahead of the device, so its own clock at a step's end says only when work was queued.
An event recorded there says when it was finished; read at the end, after the one synchronisation.
"""

from __future__ import annotations

import bisect
import time
from typing import Any

APART_S = 0.001
"""Marks closer than this add nothing."""
MARKS_KEPT = 20_000


class DeviceClock:
    """Marks on the current CUDA stream, and the host times at which they were passed."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self._hosts: list[float] = []
        self._events: list[Any] = []
        self._dones: list[float] = []

    def mark(self, now: float) -> None:
        """A step's work is queued up to here; `now` is the host's perf_counter."""
        if self._hosts and now - self._hosts[-1] < APART_S:
            return
        if self._cuda.is_current_stream_capturing():
            return
        event = self._cuda.Event(enable_timing=True)
        event.record()
        self._hosts.append(now)
        self._events.append(event)
        if len(self._hosts) > MARKS_KEPT:
            del self._hosts[: MARKS_KEPT // 2], self._events[: MARKS_KEPT // 2]

    def read(self) -> None:
        """Wait for the device, and work out when each mark was passed on the host's clock."""
        last = self._cuda.Event(enable_timing=True)
        last.record()
        last.synchronize()
        now = time.perf_counter()
        self._dones = []
        for host, event in zip(self._hosts, self._events):
            done = now - event.elapsed_time(last) / 1000.0
            before = self._dones[-1] if self._dones else host
            self._dones.append(max(done, host, before))

    def done(self, host: float) -> float:
        """When the work queued by host time `host` was finished; `host` itself before any mark."""
        at = bisect.bisect_right(self._hosts, host) - 1
        if at < 0 or at >= len(self._dones):
            return host
        return max(host, self._dones[at])


def start_if_in_use(torch: Any) -> DeviceClock | None:
    """A clock once the program uses CUDA."""
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return DeviceClock(torch)
