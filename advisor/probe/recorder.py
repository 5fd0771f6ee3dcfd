"""Event log of this process: hooks append, `flush` writes.

`advisor/analysis/events.py` reads it, and names the fields of each kind.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from typing import Any, Callable

from .clocks import clock, monotonic

Event = tuple[Any, ...]

VERSION = 7
"""Format of the record and event log."""
STEPS = ("step", "batch", "call", "backward", "gradient")
"""Kinds that say how far a program is; second and third are start and end."""
PASS_ENDED = -1.0
"""Items of a fetch at its DataLoader's end."""
LENGTH = ".length"
"""Ending of an argument's name among a call's numbers: its size beside the batch."""
ROW = ".row"
"""Ending of an argument's name: the row of a larger array at which it begins, as a slice does."""
SETTING_UP = 2
"""Batches or forwards while a program may still compile.

Judgement: fewer end the start while a forward still compiles, more delay its end in a slow program.
"""


def nothing(*_: Any) -> None:
    """Do nothing: stands where a hook is not in place."""


class Recorder:
    """Buffered writer of the event log.

    A hook appends a tuple and returns. Turning events into text and writing them is left to
    `flush`, some 20 times a second, so that a step of a fraction of a millisecond does not pay
    for it with each of its events.
    """

    def __init__(self, folder: str, pid: int, epoch: float) -> None:
        self._path = os.path.join(folder, f"events-{pid}.jsonl")
        self._buffer: list[Event] = []
        self.add: Callable[[Event], object] = self._buffer.append
        """Appends one event; hooks look it up at each use, as it may be diverted."""
        self.counts: dict[str, int] = Counter()
        """Flushed events by kind."""
        self.last_time: float | None = None
        """Epoch seconds of the end of the latest of STEPS."""
        self._epoch = epoch + monotonic() - clock()
        self.last_items = 0.0
        """Items of the latest batch, or else forward."""
        self.add(("clock", self._epoch))

    def flush(self) -> None:
        """Write the events so far as one line; threads may go on appending meanwhile."""
        many = len(self._buffer)
        events = self._buffer[:many]
        del self._buffer[:many]  # what another thread appends meanwhile stays
        if not events:
            return
        self.counts.update(event[0] for event in events)
        ends = [event[2] for event in events if event[0] in STEPS]
        items = [event[4] for event in events if event[0] in ("batch", "call")]
        if ends:
            self.last_time = ends[-1] + self._epoch
        if items:
            self.last_items = items[-1]
        write_whole(self._path, json.dumps(events, default=str) + "\n", os.O_APPEND)

    def divert(self, to: list[Event] | None) -> None:
        """Append events to `to`, which is not written; None: to the log again."""
        self.add = (self._buffer if to is None else to).append

    def close(self) -> None:
        """Write what is there; record no more."""
        self.flush()
        self.add = nothing

    def known_steps(self, built: bool = False) -> int:
        """Steps so far; of optimizers where they step, or one is `built`."""
        return self.counts["step"] or (
            0 if built else max(self.counts[kind] for kind in STEPS)
        )

    def at_work(self) -> bool:
        """Return True once steps have begun."""
        furthest = max(self.counts[kind] for kind in STEPS if kind != "step")
        return self.counts["step"] > 0 or furthest > SETTING_UP


def write_whole(path: str, text: str, flags: int) -> None:
    """Write `text` in one call. Raises OSError on a full disk."""
    data = text.encode("utf-8", "replace")  # a name may be no UTF-8
    file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        written = os.write(file, data)
    finally:
        os.close(file)
    if written < len(data):  # a full disk takes a part first
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
