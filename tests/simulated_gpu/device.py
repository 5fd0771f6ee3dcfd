"""Cards, their streams and memory, in real time; no torch.

Work is queued on a stream of a card with its length, and is over when that time has passed. The
streams of a card run beside each other. The host blocks when it is too far ahead.
"""

import json
import os
import socket
import threading
import time
from collections import deque
from typing import Any

AHEAD = 1024
"""Launches that may be pending before the host blocks, as on a real card."""
CONTEXT_BYTES = 400 << 20
GIB = 1 << 30
SEGMENT = 20 << 20
"""Bytes that the allocator reserves at once."""
WORKSPACE = 32 << 20
"""Bytes that the library of matrix products takes with its first one, and keeps."""
NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"

METER_S = 1.0
"""Time over which utilisation is averaged, so that it ramps as the driver's does."""

clock = time.perf_counter


class CaptureError(RuntimeError):
    """What must not be done while a stream is captured."""


class Graph:
    """What was queued while it was captured."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.spoilt = False


class Memory:
    """A caching allocator, roughly: it reserves whole segments, and keeps what is freed."""

    def __init__(self, total: int) -> None:
        self.total = self.limit = total
        self.allocated = self.reserved = self.peak = self.peak_reserved = self.ooms = 0

    def take(self, size: int) -> bool:
        """Whether there was room for `size` bytes."""
        if self.allocated + size > self.limit:
            self.ooms += 1
            self.free_cache()
            return False
        self.allocated += size
        self.reserved = max(self.reserved, self._segments())
        self.peak = max(self.peak, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def give(self, size: int) -> None:
        """Bytes that nobody holds any more."""
        self.allocated -= size

    def free_cache(self) -> None:
        """Keep no more than what is allocated needs."""
        self.reserved = self._segments()

    def _segments(self) -> int:
        return min(self.limit, -(-self.allocated // SEGMENT) * SEGMENT)


class Card:
    """One card."""

    def __init__(self, index: int, facts: dict[str, Any]) -> None:
        self.index = index
        self.name: str = facts["name"]
        self.uuid: str = facts["uuid"]
        self.scale: float = facts["memory_scale"]
        self.kernel_s: float = facts["kernel_us"] * 1e-6
        self.s_per_byte: float = facts["us_per_mb"] * 1e-12
        self.copy_s_per_byte: float = facts["copy_us_per_mb"] * 1e-12
        self.memory = Memory(int(facts["memory_gib"] * GIB))
        self.ends: dict[int, float] = {}
        """By stream: when its queued work is over."""
        self.stream = 0
        """The current one."""
        self._context = self._workspace = False
        self.graph: Graph | None = None
        """While it is captured."""
        self._pending: deque[float] = deque()
        self._recent: deque[tuple[float, float]] = deque(maxlen=20_000)
        """Latest spans of work, some of them still to come."""

    def busy_share(self, since_s: float) -> float:
        """Share of the last `since_s` seconds in which a stream had work."""
        now = clock()
        busy, until = 0.0, now - since_s
        for start, end in sorted(self._recent.copy()):
            busy += max(0.0, min(end, now) - max(start, until))
            until = max(until, min(end, now))
        return busy / since_s

    @property
    def context(self) -> bool:
        """Whether the process holds one on this card."""
        return self._context

    @context.setter
    def context(self, held: bool) -> None:
        if held and not self._context:
            tell("context", self.index)
        self._context = held

    @property
    def busy_until(self) -> float:
        """When the work of all streams is over."""
        return max(self.ends.values(), default=0.0)

    def launch(self, seconds: float, *, copy: bool = False) -> None:
        """Queue work of so many seconds."""
        self.context = True
        if self.graph is not None:
            self.graph.seconds += seconds
            return
        now = clock()
        pending = self._pending
        while pending and pending[0] <= now:
            pending.popleft()
        if len(pending) >= AHEAD:
            time.sleep(max(0.0, pending.popleft() - now))
            now = clock()
        start = max(now, self.ends.get(self.stream, 0.0))
        end = self.ends[self.stream] = start + seconds
        pending.append(end)
        self._recent.append((start, end))
        tell("copy" if copy else "work", self.index, start, end)

    def prepare(self, *, waits: bool, multiplies: bool) -> None:
        """Come to an operation: wait for the card, or take the workspace of products, once."""
        if waits:
            self.synchronize()
        if multiplies and not self._workspace:
            self._workspace = self.memory.take(WORKSPACE)

    def synchronize(self) -> None:
        """Wait until all streams are empty."""
        self.context = True
        not_in_a_capture("a wait for the device")
        wait(self.busy_until)


def wait(until: float) -> None:
    """Sleep up to a moment of `clock`, and no longer than a few microseconds more."""
    left = until - clock()
    if left > 2e-4:
        time.sleep(left - 1e-4)
    while clock() < until:
        pass


cards: list[Card] = []
current = 0
"""Index of the card that work goes to where nothing else is said."""
initialized = False
journal: int | None = None
"""Descriptor of the file that is told what happens, as it happens: a process may end any time."""
owner = os.getpid()
_epoch = time.time() - clock()


def tell(kind: str, what: object, start: float = 0.0, end: float = 0.0) -> None:
    """One line of the journal; times of `clock`."""
    if journal is not None and os.getpid() == owner:
        event = [kind, what, start + _epoch, end + _epoch]
        os.write(journal, json.dumps(event).encode() + b"\n")


def report_to(port: int) -> None:
    """Send each card's use to a local port, ten times a second, as long as this process lives."""

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            while True:
                use = {c.uuid: [c.busy_share(METER_S), c.memory.reserved * c.scale] for c in cards}
                line.sendto(json.dumps(use).encode(), ("127.0.0.1", port))
                time.sleep(0.1)

    threading.Thread(target=send, daemon=True).start()


def here() -> Card:
    """The current card."""
    return cards[current]


def not_in_a_capture(what: str) -> None:
    """What no stream may do while one is captured. Raises CaptureError; the capture is lost."""
    for card in cards:
        if card.graph is not None:
            card.graph.spoilt = True
            tell("spoilt", f"{what} inside a capture")
            raise CaptureError(NOT_PERMITTED)


def launch(ms: float) -> None:
    """Queue a kernel on the current card."""
    here().launch(ms / 1000)


def work(ms: float) -> None:
    """Keep the host busy for so long; where its time is its own, that takes nothing of anybody."""
    until = clock() + ms / 1000
    if os.environ.get("SIMULATED_GPU_OWN_TIME"):
        time.sleep(ms / 1000)
    while clock() < until:
        pass
