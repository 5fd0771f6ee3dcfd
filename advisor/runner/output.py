"""Output stream of the program: tail, log and pattern."""

import contextlib
import os
import re
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from advisor.files import reading
from advisor.runner.resources import Reading

TAIL_BYTES = 64 * 1024
LOG_BYTES = 4 * 1024 * 1024
MARKS = 1024
"""Most marks kept; of more every second one goes."""
LINE_BYTES = 64 * 1024
"""A longer line is matched by its beginning only."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LINE_END = re.compile(rb"[\r\n]+")


def plain(data: bytes) -> str:
    """Text without terminal colours and redrawn parts."""
    text = _ANSI.sub("", data.decode("utf-8", errors="replace"))
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class Tally:
    """Thread-safe count of units in matching output lines."""

    def __init__(self, pattern: str | None = None) -> None:
        self.pattern = re.compile(pattern) if pattern else None
        self._lock = threading.Lock()
        self.lines = 0
        self.marks: tuple[Reading, ...] = ()
        """Units of all lines so far; first and last are always among them."""

    @property
    def seconds(self) -> float:
        """Time from first to last line."""
        return self.marks[-1].time - self.marks[0].time if self.marks else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Units a second of about eight parts of the time."""
        edges = self.marks[:: max(1, len(self.marks) // 8)]
        parts = [(b.value - a.value, b.time - a.time) for a, b in pairwise(edges)]
        return tuple(units / seconds for units, seconds in parts if seconds > 0)

    def add(self, line: bytes) -> None:
        """Count `line` if it matches; group 1 gives units."""
        match = self.pattern.search(plain(line[:LINE_BYTES])) if self.pattern else None
        if match is None:
            return
        units = 1.0
        with contextlib.suppress(ValueError):
            if match.re.groups and match[1]:
                units = float(match[1].replace(",", ""))
        with self._lock:
            before = self.marks[-1].value if self.marks else 0.0
            kept = self.marks if len(self.marks) < MARKS else self.marks[::2]
            self.marks = (*kept, Reading(time.time(), before + units))
            self.lines += 1


class Stream(threading.Thread):
    """Reader of one pipe to its end, with a log in our folder."""

    def __init__(self, fd: int, folder: str, log: str, tally: Tally) -> None:
        super().__init__(name=log, daemon=True)
        self._fd = fd
        self._folder = Path(folder)
        self._log = log
        self._tally = tally
        self._tail = bytearray()
        self._lock = threading.Lock()
        self.start()

    def tail(self) -> bytes:
        """The last 64 KiB so far."""
        with self._lock:
            return bytes(self._tail)

    def run(self) -> None:
        """Drain the pipe, so that the writer never blocks."""
        line, room = b"", LOG_BYTES
        with (
            os.fdopen(self._fd, "rb", buffering=0) as pipe,
            contextlib.ExitStack() as stack,
        ):
            log: BinaryIO | None = None
            while chunk := pipe.read(1 << 16):
                with self._lock:
                    self._tail += chunk
                    del self._tail[:-TAIL_BYTES]
                with contextlib.suppress(OSError):  # a full disk costs the log alone
                    if room == LOG_BYTES:  # the directory exists before the first writer
                        handle = reading.create(self._folder, self._log)
                        log = stack.enter_context(os.fdopen(handle, "wb", buffering=0))
                    if log is not None and room > 0:
                        log.write(chunk[:room])
                room -= len(chunk)
                if self._tally.pattern:
                    *whole, line = _LINE_END.split(line + chunk)
                    line = line[:LINE_BYTES]
                    for each in whole:
                        self._tally.add(each)
            self._tally.add(line)
