"""Output stream of the program: tail, log and pattern."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

from advisor.analysis.window_parts import Part
from advisor.files import within

if TYPE_CHECKING:
    from pathlib import Path

TAIL_BYTES = 64 * 1024
LOG_BYTES = 4 * 1024 * 1024
"""The log file keeps this much of the beginning, and the tail after a mark."""
PART_S = 0.1
"""Shortest part of what is counted, until there are so many of them that pairs are joined."""
PARTS = 512
LINE_BYTES = 64 * 1024
"""A line longer than this is matched by its beginning only."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LINE_END = re.compile(rb"[\r\n]+")


def plain(data: bytes) -> str:
    """Text without terminal colours and redrawn parts."""
    text = _ANSI.sub("", data.decode("utf-8", errors="replace"))
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Units counted in output lines, with epoch seconds."""

    lines: int = 0
    units: float = 0.0
    first_units: float = 0.0
    """Units of the first matching line: they were worked on before it was seen."""
    first_time: float | None = None
    last_time: float | None = None
    parts: tuple[Part, ...] = ()
    """Of the time from the first line to the last, each from one line to another."""


class Tally:
    """Thread-safe count of units in output lines."""

    def __init__(self, pattern: str | None) -> None:
        self._pattern = re.compile(pattern) if pattern else None
        self._lock = threading.Lock()
        self._count = Count()
        self._parts: list[Part] = []
        self._part_s = PART_S

    @property
    def count(self) -> Count:
        """Everything so far."""
        with self._lock:
            parts = tuple(self._parts)
            if len(parts) > 1 and parts[-1].seconds < self._part_s:
                parts = (*parts[:-2], _joined(*parts[-2:]))
            return replace(self._count, parts=parts)

    @property
    def wanted(self) -> bool:
        return self._pattern is not None

    def add(self, line: bytes) -> None:
        """Count `line` if it matches; group 1 gives units."""
        if self._pattern is None:
            return
        match = self._pattern.search(plain(line[:LINE_BYTES]))
        if match is None:
            return
        units = _number(match[1]) if match.re.groups else 1.0
        now = time.time()
        with self._lock:
            before = self._count
            first = before.first_time is None
            if not first:
                self._extend(before.last_time or now, now, units)
            self._count = Count(
                lines=before.lines + 1,
                units=before.units + units,
                first_units=units if first else before.first_units,
                first_time=now if first else before.first_time,
                last_time=now,
            )

    def _extend(self, start: float, end: float, units: float) -> None:
        """The last part goes on while it is short."""
        if self._parts and self._parts[-1].seconds < self._part_s:
            last = self._parts.pop()
            start, units = last.start, units + last.units
        self._parts.append(Part(start=start, end=end, units=units))
        if len(self._parts) >= PARTS:
            self._part_s *= 2
            self._parts = [
                _joined(*pair) for pair in zip(self._parts[::2], self._parts[1::2], strict=True)
            ]


class Stream:
    """Reader of one pipe in its own thread."""

    def __init__(self, fd: int, log: Path, tally: Tally, folder: Path | None = None) -> None:
        """Open the log in our `folder`."""
        self._fd = fd
        self._folder = folder or log.parent
        self._log = log
        self._tally = tally
        self._tail = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name=log.stem, daemon=True)
        self._thread.start()

    def tail(self) -> bytes:
        """The last 64 KiB so far."""
        with self._lock:
            return bytes(self._tail[-TAIL_BYTES:])

    def join(self, seconds: float) -> None:
        """Wait for the stream's end, within a limit."""
        self._thread.join(seconds)

    def _open(self) -> BinaryIO | None:
        """Create the log, or None if its place is taken."""
        with contextlib.suppress(OSError):
            name = str(self._log.relative_to(self._folder))
            return os.fdopen(within.create(self._folder, name), "wb", buffering=0)
        return None

    def _read(self) -> None:
        line = b""
        total = 0
        try:
            file = None
            while chunk := os.read(self._fd, 1 << 16):
                with self._lock:
                    self._tail += chunk
                    if len(self._tail) > 4 * TAIL_BYTES:
                        del self._tail[:-TAIL_BYTES]
                if not total:  # the directory exists before the first writer starts
                    file = self._open()
                if file is not None and total < LOG_BYTES:
                    file = _kept(file, chunk[: LOG_BYTES - total])
                total += len(chunk)
                if self._tally.wanted:
                    *whole, line = _LINE_END.split(line + chunk)
                    line = line[:LINE_BYTES]
                    for each in whole:
                        self._tally.add(each)
            self._tally.add(line)
            if file is not None and total > LOG_BYTES:
                rest = self.tail()[-(total - LOG_BYTES) :]
                missing = total - LOG_BYTES - len(rest)
                mark = f"\n[{missing} bytes left out]\n".encode() if missing else b""
                file = _kept(file, mark + rest)
            if file is not None:
                file.close()
        finally:
            os.close(self._fd)


def _kept(file: BinaryIO, data: bytes) -> BinaryIO | None:
    """Append `data` to the log; None if that fails.

    The pipe is still drained, so that the writer never blocks.

    The pipe is drained to its end, so that the writer never blocks.
    """
    try:
        file.write(data)
    except OSError:
        file.close()
        return None
    return file


def _joined(first: Part, second: Part) -> Part:
    return Part(start=first.start, end=second.end, units=first.units + second.units)


def _number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return 1.0
