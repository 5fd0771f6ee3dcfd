"""When the device was done with each step, by CUDA events; nothing waits until the end.

The host runs ahead of the device, so its own clock at a step's end says only when work was queued.
An event recorded there says when it was finished; read at the end, after the one synchronisation.
"""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING, Any

from . import cards

if TYPE_CHECKING:
    from .log import Root

APART_S = 0.001
"""Marks closer than this add nothing."""
MARKS_KEPT = 20_000
COMPARED = 8
"""Times that the two clocks are read beside each other."""


class DeviceClock:
    """Marks on the current stream of one card, and the host times at which they were passed."""

    def __init__(self, torch: Any, card: int) -> None:
        self._cuda = torch.cuda
        self._card = card
        self._stepped = float("-inf")
        """Host time of the latest mark that is not an inner one."""
        self._hosts: list[float] = []
        self._events: list[Any] = []
        self._dones: list[float] = []

    def mark(self, now: float, inner: bool = False) -> None:
        """Work is queued up to here; `now` is the host's perf_counter. An `inner` one, within a
        step, never takes the place of the one at its end."""
        latest = self._hosts[-1] if inner and self._hosts else self._stepped
        if now - latest < APART_S:
            return
        if self._cuda.is_current_stream_capturing():
            return
        self._events.append(self._recorded())
        self._hosts.append(now)
        if not inner:
            self._stepped = now
        if len(self._hosts) > MARKS_KEPT:
            del self._hosts[: MARKS_KEPT // 2], self._events[: MARKS_KEPT // 2]

    def _recorded(self) -> Any:
        """On that card's stream, whichever card is the current one."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._card))
        return event

    def read(self) -> None:
        """Wait for the device, and work out when each mark was passed on the host's clock."""
        self._recorded().synchronize()
        last, passed = self._compared()
        self._dones = []
        for host, event in zip(self._hosts, self._events):
            done = passed - event.elapsed_time(last) / 1000.0
            before = self._dones[-1] if self._dones else host
            self._dones.append(max(done, host, before))

    def _compared(self) -> tuple[Any, float]:
        """An event of the idle device, and the host time at which it was passed.

        A busy host hears of it late, so of several the one that it heard of soonest counts.
        """
        found = []
        for _ in range(COMPARED):
            before = time.perf_counter()
            event = self._recorded()
            event.synchronize()
            found.append((time.perf_counter() - before, before, event))
        _, before, event = min(found, key=lambda each: each[0])
        return event, before

    def done(self, host: float) -> float:
        """When the work queued by host time `host` was finished; `host` itself before any mark."""
        at = bisect.bisect_right(self._hosts, host) - 1
        if at < 0 or at >= len(self._dones):
            return host
        return max(host, self._dones[at])

    def marks(self) -> list[tuple[float, float]]:
        """(host time, time at which the device had done what was queued by then), in order."""
        return list(zip(self._hosts, self._dones))


def start_if_in_use(torch: Any, roots: list[Root]) -> DeviceClock | None:
    """A clock of the card that the model is on, once there is one."""
    card = cards.in_use(torch, roots)
    return None if card is None else DeviceClock(torch, card)
