"""Output of a program, searched as it comes, however long it is.

Only the last 64 KiB are kept as text. Whatever decides something is looked for while the output
streams by: a rate that a program prints before five megabytes of other lines counts like one that
it prints last.
"""

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from advisor import clock
from advisor.model import OutputPattern
from advisor.runner.resources import Reading

TAIL_BYTES = 64 * 1024
"""Bytes at the end of a stream that are kept as text.

Judgement: fewer loses a traceback before many warnings, more fills memory for nothing."""
LEAST_UNITS, MOST_UNITS = 1e-15, 1e15
"""A line that tells more, less, or no finite number, counts as one unit; it may tell of none."""
MARKS = 1024
"""Most marks kept; of more every second one goes.

Judgement: fewer makes the parts of `rates` coarse. More costs time: each line copies all."""
LINE_BYTES = 64 * 1024
"""Bytes of a line that are searched; of a longer one that is its beginning.

Judgement: fewer misses a figure in a long line of JSON, more lets an output without line ends fill
the memory."""
RATE_CHARS = 4096
"""Characters of a line that are searched for a rate.

A pattern may take the square of a line's length. Judgement: more lets one line hold up the reading,
fewer misses a figure at the end of a long line."""
BLOCK_CHARS = 64 * 1024
"""Text is searched in blocks, of once to twice so many characters: a pattern may span lines.

Judgement: fewer searches the overlaps too often, more keeps more text in memory."""
OVERLAP_CHARS = 8 * 1024
"""Longest match, in characters, that is surely found where two blocks meet.

Judgement: fewer loses longer matches there, more searches a larger part of each block twice."""
MOST_FIGURES = 100_000
"""Matches kept of a pattern that counts each: the first, as items are paired in their order.

Judgement: fewer leaves the last items of a large run uncompared, more fills the memory."""
FIGURE_CHARS = 400
"""Longest text kept of a match, in characters: a float spelled in full has up to 330.

With its sign -2.2250738585072014e-308, the smallest normal double of IEEE 754, has 327."""
MOST_LINES = 200
"""Telling lines kept of a stream: the latest.

Judgement: fewer loses one of several causes, more keeps repetitions of one."""
SHOWN_CHARS = 2000
"""Characters of a line that users see and reports keep; of a longer one its beginning.

Judgement: fewer cuts messages with long paths, more lets one line of data fill the page."""
TRACEBACK = "Traceback (most recent call last):"

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LINE_END = re.compile(rb"[\r\n]+")


def plain(data: bytes) -> str:
    """Text without terminal colours and redrawn parts."""
    text = _ANSI.sub("", data.decode("utf-8", errors="replace"))
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def short_line(line: str) -> str:
    """Return a line as it is shown: of SHOWN_CHARS at most, and what was left out."""
    if len(line) <= SHOWN_CHARS:
        return line
    return f"{line[:SHOWN_CHARS]} ... ({len(line) - SHOWN_CHARS:,} characters more)"


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
                told = float(match[1].replace(",", ""))
                units = told if told == 0 or LEAST_UNITS <= told <= MOST_UNITS else units
        with self._lock:
            before = self.marks[-1].value if self.marks else 0.0
            kept = self.marks if len(self.marks) < MARKS else self.marks[::2]
            self.marks = (*kept, Reading(clock.now(), before + units))
            self.lines += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for in all that a program prints."""

    figures: tuple[OutputPattern, ...] = ()
    lines: re.Pattern[str] | None = None
    """Lines to keep, wherever they stand; printed tracebacks are kept with them."""
    words: tuple[str, ...] = ()
    """Each line that `lines` matches holds one of these, in lower case.

    A look for words costs a hundredth of a search, and a program may print a gigabyte.
    """


NOTHING = Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What was seen of one stream, or of both."""

    tail: str = ""
    """The last 64 KiB, as text."""
    figures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts of the matches, by the pattern's name; none where nothing matched."""
    lines: tuple[str, ...] = ()
    """Telling lines of the whole output, in order."""
    cut_lines: int = 0
    """Lines too long to be searched whole."""


class _LineFigure:
    """First match in the last line that has one; a later line of a log is the newer figure."""

    def __init__(self, asked: OutputPattern) -> None:
        self._pattern = re.compile(asked.pattern)
        self._last: tuple[str, ...] = ()

    def add(self, lines: Sequence[str]) -> None:
        for line in reversed(lines):
            if match := self._pattern.search(line[:RATE_CHARS]):
                self._last = (_text_of(match),)
                return

    def found(self) -> tuple[str, ...]:
        return self._last


class _TextFigure:
    """Matches in the whole text, as `re.finditer` would find them in one piece.

    The text comes in blocks that end with a line. What begins in the last OVERLAP_CHARS of a block
    is looked at again with the next one, so that a match over two blocks is found, once. From the
    second block on a line end stands before the text: `^` without (?m) means the output's start.
    """

    def __init__(self, asked: OutputPattern) -> None:
        self._pattern = re.compile(asked.pattern)
        self._found: deque[str] = deque()
        self._most = 1 if asked.matches == "last" else MOST_FIGURES
        self._last = asked.matches == "last"
        self._lines: list[str] = []
        self._chars = 0
        self._from = 0

    def add(self, lines: Sequence[str]) -> None:
        self._lines += lines
        self._chars += sum(map(len, lines)) + len(lines)
        if self._chars >= 2 * BLOCK_CHARS:  # so a long line leaves half of it to search
            self._search_block()

    def found(self) -> tuple[str, ...]:
        """All matches so far, those of the unfinished block too."""
        text = "\n".join(self._lines) + "\n"
        kept = deque(self._found)
        for match in self._pattern.finditer(text, self._from):
            self._keep(kept, match)
        return tuple(kept)

    def _keep(self, kept: deque[str], match: re.Match[str]) -> None:
        if len(kept) < self._most:
            kept.append(_text_of(match))
        elif self._last:
            kept[0] = _text_of(match)

    def _search_block(self) -> None:
        text = "\n".join(self._lines) + "\n"
        cut = text.rfind("\n", 0, len(text) - OVERLAP_CHARS) + 1
        until = cut
        for match in self._pattern.finditer(text, self._from):
            if match.start() >= cut:
                break
            self._keep(self._found, match)
            until = max(until, match.end())
        # the line end before the rest stays as its first character
        rest = text[max(cut - 1, 0) : -1]
        self._from = until - max(cut - 1, 0)
        self._lines = rest.split("\n")
        self._chars = len(rest) + 1


def _text_of(match: re.Match[str]) -> str:
    return ((match[1] if match.re.groups else match[0]) or "")[:FIGURE_CHARS]


class _Lines:
    """Telling lines, and tracebacks with the line before and the exception after."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._kept: deque[str] = deque(maxlen=MOST_LINES)
        self._before = ""
        self._inside = False

    def add(self, lines: Sequence[str]) -> None:
        """Look at each line only where a word in all of them says that one may tell something."""
        text = "\n".join(lines)
        lower = text.lower()
        if (
            self._inside
            or TRACEBACK in text
            or any(word in lower for word in self._wanted.words)
        ):
            for line in lines:
                self._add_one(line)
        else:
            self._before = lines[-1]

    def _add_one(self, line: str) -> None:
        before, self._before = self._before, line
        if line.strip() == TRACEBACK:
            self._inside = True
            self._kept += [before, line]
        elif self._inside and line[:1].strip():  # the exception ends its frames
            self._inside = False
            self._kept.append(line)
        elif self._telling(line):
            self._kept.append(line)

    def _telling(self, line: str) -> bool:
        """Return True for a line that is looked for; a look for words spares most searches."""
        pattern, lower = self._wanted.lines, line.lower()
        if pattern is None or not any(word in lower for word in self._wanted.words):
            return False
        return pattern.search(line) is not None

    def found(self) -> tuple[str, ...]:
        return tuple(self._kept)


class _Search:
    """Search of one stream, fed with its bytes."""

    def __init__(self, wanted: Wanted) -> None:
        self._figures = {
            asked.name: (_LineFigure if asked.matches == "line" else _TextFigure)(asked)
            for asked in wanted.figures
        }
        self._lines = _Lines(wanted)
        self._idle = not self._figures and wanted.lines is None
        of_lines = any(figure.matches == "line" for figure in wanted.figures)
        self._longest = RATE_CHARS if of_lines else LINE_BYTES
        self._rest = bytearray()
        self._skipping = False
        self.cut_lines = 0

    def feed(self, chunk: bytes) -> None:
        if self._idle:
            return
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            first, more, block = head.partition(b"\n")
            self._extend(first)
            self._end_line()
            if more:  # whole lines, at once: a program may print a million a second
                self._take(plain(block).split("\n"))
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        """Add to the unfinished line, of which only the beginning is kept.

        A line that is redrawn, as progress bars are, begins anew after each carriage return.
        """
        redrawn = part.rstrip(b"\r").rfind(b"\r")
        if redrawn >= 0 or (part.strip(b"\r") and self._rest.endswith(b"\r")):
            self._rest, self._skipping = bytearray(), False
            part = part[redrawn + 1 :]
        room = LINE_BYTES - len(self._rest)
        self._skipping = self._skipping or len(part) > room
        self._rest += part[:room]

    def _end_line(self) -> None:
        line = plain(bytes(self._rest))
        self.cut_lines += self._skipping and len(line) <= self._longest
        self._rest, self._skipping = bytearray(), False
        self._take([line])

    def _take(self, lines: Sequence[str]) -> None:
        self.cut_lines += sum(len(line) > self._longest for line in lines)
        for search in (*self._figures.values(), self._lines):
            search.add(lines)

    def end(self) -> None:
        """Take what follows the last line end for a line."""
        if self._rest:
            self._end_line()

    def figures(self) -> dict[str, tuple[str, ...]]:
        matches = {name: figure.found() for name, figure in self._figures.items()}
        return {name: texts for name, texts in matches.items() if texts}

    def lines(self) -> tuple[str, ...]:
        return self._lines.found()


class Stream(threading.Thread):
    """Reader of one pipe to its end."""

    def __init__(self, fd: int, name: str, tally: Tally, wanted: Wanted = NOTHING) -> None:
        super().__init__(name=name, daemon=True)
        self._fd = fd
        self._tally = tally
        self._tail = bytearray()
        self._search = _Search(wanted)
        self._lock = threading.Lock()
        self.start()

    def tail(self) -> bytes:
        """The last 64 KiB so far."""
        with self._lock:
            return bytes(self._tail)

    def printed(self) -> Printed:
        """What was seen so far; what follows the last line end counts as a line."""
        with self._lock:
            self._search.end()
            return Printed(
                tail=plain(bytes(self._tail)),
                figures=self._search.figures(),
                lines=self._search.lines(),
                cut_lines=self._search.cut_lines,
            )

    def run(self) -> None:
        """Drain the pipe, so that the writer never blocks."""
        line = b""
        with os.fdopen(self._fd, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 16):
                with self._lock:
                    self._tail += chunk
                    del self._tail[:-TAIL_BYTES]
                    self._search.feed(chunk)
                if self._tally.pattern:
                    *whole, line = _LINE_END.split(line + chunk)
                    line = line[:LINE_BYTES]
                    for whole_line in whole:
                        self._tally.add(whole_line)
            self._tally.add(line)


def joined(stdout: Printed, stderr: Printed) -> Printed:
    """Both streams: figures of standard error only where standard output has none."""
    return Printed(
        tail=stdout.tail,
        figures={**stderr.figures, **stdout.figures},
        lines=(*stdout.lines, *stderr.lines),
        cut_lines=stdout.cut_lines + stderr.cut_lines,
    )
