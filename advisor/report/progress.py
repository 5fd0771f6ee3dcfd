"""Progress on stderr: one live view on a terminal, one line a trial elsewhere.

A stream that has gone away is ignored: progress never stops the work.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

from advisor import numbers
from advisor.report.markdown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

    from advisor.report.schema import TrialEntry

STAGES = {
    "baseline": "baseline: the command as it is",
    "effects": "discover: settings that the program follows",
    "search": "search: batch, workers and other settings",
    "confirm": "confirm: original against candidate, in interleaved rounds",
    "quality": "quality: the declared measures of the candidate",
    "whatif": "code suggestions: changes that are not applied",
    "profile": "profile: the command as it is",
}
"""Purpose of trials to the stage, in words."""
REASONS = {
    "baseline": "how fast is it as it is?",
    "effects": "does the program follow the setting?",
    "search": "is it faster?",
    "confirm": "is the difference certain?",
    "quality": "does the result stay inside its tolerance?",
    "whatif": "would this change of the code help?",
}
"""Purpose of trials to why one runs."""
COMPARABLE = ("baseline", "search", "confirm", "profile")
"""Purposes of trials whose throughputs may be compared."""
ORIGINAL = "original"
"""Label of the variant without changes."""
MOST_ROWS = 8
BAR_SHARE = 5
"""One of so many columns of the terminal is a throughput bar."""
NARROW, WIDE, WIDEST = 60, 110, 140
"""Columns of a terminal: with memory, with waiting too, and the most that are used."""


class Row(NamedTuple):
    """One variant so far."""

    label: str
    units_per_s: float | None
    """Mean of its comparable runs."""
    peak_gib: float | None
    wait_share: float | None
    runs: int
    outcome: str
    """Of its last run."""


class Progress:
    """Progress of stages and trials.

    `finish` it, or use it as a context.
    """

    def __init__(
        self,
        *,
        unit: str,
        budget_s: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._units = numbers.plural(unit)
        self._budget_s = budget_s
        self._clock = clock
        self._began = clock()
        self._stage = ""
        self._status = ""
        self._others = ""
        self._running: list[tuple[int, str, str]] = []
        self._done: list[TrialEntry] = []
        self._live = None
        if is_terminal(self._stream):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(self, console=console, redirect_stdout=False, redirect_stderr=False)
            self._live.start()

    # --- events ---------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """One line that stays."""
        self._line(one_line(text))

    def _line(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed file
            if self._live is None:
                print(text, file=self._stream, flush=True)
            else:
                from rich.text import Text

                self._live.console.print(Text(text))

    def status(self, text: str) -> None:
        """Latest state of what runs; only a live view shows it."""
        self._status = one_line(text)

    def busy(self, text: str) -> None:
        """Others at work, until the next result."""
        self._others = one_line(text)
        if self._live is None:
            self.note(text)

    def stage(self, name: str) -> None:
        """Begin the stage with this purpose."""
        self._stage = STAGES.get(name, name)
        if self._live is None:
            self.note(f"{self._stage} ({self._elapsed()})")

    def trial_started(self, n: int, label: str, purpose: str) -> None:
        """Show process number `n` of this call."""
        self._running.append((n, label, purpose))

    def trial_done(self, entry: TrialEntry) -> None:
        """Show the result of a trial."""
        began = [each for each in self._running if each[1:] == (entry.label, entry.purpose)]
        if began:
            self._running.remove(began[0])
        self._done.append(entry)
        self._status = self._others = ""
        if self._live is None:
            number = began[0][0] if began else len(self._done)
            cells = (f"trial {number}", one_line(entry.label), entry.purpose, *self._cells(entry))
            self._line("  ".join(cells))

    def finish(self) -> None:
        """Leave the terminal as it was found."""
        with contextlib.suppress(OSError, ValueError):
            if self._live is not None:
                self._live.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    # --- one line a trial -----------------------------------------------------------------

    def _elapsed(self) -> str:
        """`1 min 12 s of 10 min`."""
        spent = numbers.duration(float(round(self._clock() - self._began)))
        return f"{spent} of {numbers.duration(self._budget_s)}" if self._budget_s else spent

    def _cells(self, entry: TrialEntry) -> Iterator[str]:
        """Rate, wait, memory and time, or how it failed."""
        rate = numbers.number(entry.units_per_s)
        rate += f" {self._units}/s" if entry.units_per_s is not None else ""
        yield rate if entry.outcome == "ok" else entry.outcome
        if entry.wait_share is not None:
            yield f"wait {numbers.percent(entry.wait_share)}"
        if entry.peak_mem_gib is not None:
            yield f"peak {numbers.gib(entry.peak_mem_gib)}"
        if entry.wall_s is not None:
            yield numbers.duration(entry.wall_s)
        if entry.reused:
            yield "from history"

    # --- live view ------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Variants so far: the original, then the fastest ones, then failures."""
        found: dict[str, list[TrialEntry]] = {ORIGINAL: []}
        for entry in self._done:
            if entry.purpose in COMPARABLE and not entry.repeated:
                found.setdefault(entry.label, []).append(entry)
        rows = [_row(label, entries) for label, entries in found.items() if entries]
        rows.sort(key=lambda row: (row.label != ORIGINAL, -(row.units_per_s or 0.0)))
        return rows[:MOST_ROWS]

    def best(self) -> str:
        """Line on the fastest variant.

        `best so far: batch 8, 1.4x the original`
        """
        rows = [row for row in self.rows() if row.units_per_s]
        base = next((row.units_per_s for row in rows if row.label == ORIGINAL), None)
        fastest = max(rows, key=lambda row: row.units_per_s or 0.0, default=None)
        if fastest is None or base is None or fastest.label == ORIGINAL:
            return "best so far: the original" if base else ""
        gain = numbers.ratio((fastest.units_per_s or 0.0) / base)
        return f"best so far: {fastest.label}, {gain} the original"

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        def line(text: str, style: str = "") -> Text:
            return Text(text, style=style, no_wrap=True, overflow="ellipsis")

        width = min(options.max_width, WIDEST)
        if self._stage:
            yield line(self._stage, "bold")
        yield line(self._budget(width))
        if rows := self.rows():
            yield self._table(rows, width)
        if best := self.best():
            yield line(best, "green")
        for n, label, purpose in list(self._running):
            why = REASONS.get(purpose, "")
            yield line(f"now: trial {n}, {one_line(label)}: {why}".rstrip(": "), "cyan")
        for text in filter(None, (self._status, self._others)):
            yield line(f"     {text}", "dim")

    def _budget(self, width: int) -> str:
        """Bar of the time spent, and the time left."""
        spent_s = self._clock() - self._began
        if not self._budget_s:
            return self._elapsed()
        left_s = float(round(max(0.0, self._budget_s - spent_s)))
        share = min(1.0, spent_s / self._budget_s)
        size = max(5, width // 3)
        bar = _bar(share, size)
        return f"{bar:░<{size}} {self._elapsed()}, {numbers.duration(left_s)} left"

    def _table(self, rows: list[Row], width: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        size = width // BAR_SHARE
        fastest = max((row.units_per_s or 0.0 for row in rows), default=0.0) or 1.0
        heads = ["variant", "", f"{self._units}/s", "runs"]
        heads += ["memory"] * (width >= NARROW) + ["wait"] * (width >= WIDE)
        table = Table(box=None, pad_edge=False, header_style="dim", width=width)
        for head in heads:
            first = head in {"variant", ""}
            table.add_column(
                head,
                no_wrap=True,
                overflow="ellipsis",
                justify="left" if first else "right",
                ratio=1 if head == "variant" else None,  # what gives way first
            )
        for row in rows:
            ended = row.units_per_s is None
            cells = [
                row.label,
                "" if ended else _bar((row.units_per_s or 0.0) / fastest, size),
                row.outcome if ended else numbers.number(row.units_per_s),
                str(row.runs),
                "" if row.peak_gib is None else numbers.gib(row.peak_gib),
                "" if row.wait_share is None else numbers.percent(row.wait_share),
            ]
            style = "red" if ended else ""
            # Text, not str: a label must not be read as rich's own markup.
            table.add_row(*map(Text, cells[: len(heads)]), style=style)
        return table


def _row(label: str, entries: list[TrialEntry]) -> Row:
    rates = [entry.units_per_s for entry in entries if entry.units_per_s is not None]
    peaks = [entry.peak_mem_gib for entry in entries if entry.peak_mem_gib is not None]
    return Row(
        label=one_line(label),
        units_per_s=sum(rates) / len(rates) if rates else None,
        peak_gib=max(peaks, default=None),
        wait_share=entries[-1].wait_share,
        runs=len(entries),
        outcome=entries[-1].outcome,
    )


def _bar(share: float, size: int) -> str:
    return "█" * max(1, round(share * size))


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal that takes colours and can redraw its lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI")
    try:
        terminal = stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    except ValueError:  # closed
        return False
    return terminal and not plain
