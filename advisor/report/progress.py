"""Progress on stderr, as a live table or lines.

A stream that has gone away is ignored: progress never stops the work.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from advisor import numbers
from advisor.report.markdown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, ConsoleOptions, RenderResult

    from advisor.report.schema import TrialEntry

STAGES = {
    "baseline": "baseline: the command as it is",
    "effects": "discover: settings that the program follows",
    "search": "search: batch, workers and other settings",
    "confirm": "confirm: original against candidate, in interleaved rounds",
    "quality": "quality: the declared measures of the candidate",
    "whatif": "code suggestions: changes that are not applied",
    "profile": "profile: the command as it is, twice",
}
"""Purpose of trials to the stage, in words."""
COMPARABLE = ("baseline", "search", "confirm")
"""Purposes of trials whose throughputs may be the best so far."""
SHOWN_TRIALS = 8
COLUMNS = {"n": 0, "candidate": 0, "purpose": 90, "rate": 0, "wait": 90, "peak": 70, "took": 50}
"""Columns of the live table, and the terminal width from which each is shown."""
ORIGINAL = "original"
"""Label of the variant without changes."""


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
        self._state = _State(unit=unit, budget_s=budget_s, clock=clock)
        stream = stream or sys.stderr
        self._screen: _Screen = (
            _Live(self._state, stream) if _is_terminal(stream) else _Lines(self._state, stream)
        )

    def note(self, text: str) -> None:
        """One line that stays."""
        self._screen.line(one_line(text))

    def stage(self, name: str) -> None:
        """Begin the stage with this purpose."""
        self._state.stage = STAGES.get(name, name)
        self._screen.stage()

    def trial_started(self, n: int, label: str, purpose: str) -> None:
        """Show process number `n` of this call."""
        self._state.running.append((n, label, purpose))
        self._screen.started()

    def trial_done(self, entry: TrialEntry) -> None:
        """Show the result of a trial."""
        self._state.add(entry)
        self._screen.done()

    def finish(self) -> None:
        """Leave the terminal as it was found."""
        self._screen.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()


class _State:
    """Everything that is known so far."""

    def __init__(self, *, unit: str, budget_s: float | None, clock: Callable[[], float]) -> None:
        self.units = numbers.plural(unit)
        self.budget_s = budget_s
        self.stage = ""
        self.running: list[tuple[int, str, str]] = []
        self.done: list[tuple[int, TrialEntry]] = []
        self._clock = clock
        self._began = clock()

    def add(self, entry: TrialEntry) -> None:
        """Move `entry` from the running to the done trials."""
        started = [r for r in self.running if r[1:] == (entry.label, entry.purpose)]
        if started:
            self.running.remove(started[0])
        last = max((n for n, _ in self.done), default=0)
        self.done.append((started[0][0] if started else last + 1, entry))

    @property
    def elapsed(self) -> str:
        """`1 min 12 s of 10 min`."""
        spent = numbers.duration(float(round(self._clock() - self._began)))
        return spent if self.budget_s is None else f"{spent} of {numbers.duration(self.budget_s)}"

    @property
    def best(self) -> str:
        """Line on the best trial so far.

        `best so far 1.61 tiles/s (batch_size=8), 1.4x the original`
        """
        rated = [
            (entry.units_per_s, entry.label)
            for _, entry in self.done
            if entry.units_per_s and entry.purpose in COMPARABLE
        ]
        base = [rate for rate, label in rated if label == ORIGINAL]
        changed = [pair for pair in rated if pair[1] != ORIGINAL]
        mean = sum(base) / len(base) if base else None
        if not changed or (mean is not None and max(changed)[0] <= mean):
            return "" if mean is None else f"original {numbers.number(mean)} {self.units}/s"
        rate, label = max(changed)
        against = f", {numbers.ratio(rate / mean)} the original" if mean else ""
        return f"best so far {numbers.number(rate)} {self.units}/s ({one_line(label)}){against}"

    def cells(self, entry: TrialEntry) -> list[str]:
        """Rate, wait, memory and time, or how it failed."""
        if entry.outcome != "ok":
            return [entry.outcome, "", "", _took(entry)]
        rate = numbers.number(entry.units_per_s)
        return [
            rate if entry.units_per_s is None else f"{rate} {self.units}/s",
            "" if entry.wait_share is None else f"wait {numbers.percent(entry.wait_share)}",
            "" if entry.peak_mem_gib is None else f"peak {numbers.gib(entry.peak_mem_gib)}",
            _took(entry),
        ]


class _Screen(Protocol):
    def line(self, text: str) -> None: ...
    def stage(self) -> None: ...
    def started(self) -> None: ...
    def done(self) -> None: ...
    def close(self) -> None: ...


class _Lines:
    """Plain lines for log files, CI and pipes."""

    def __init__(self, state: _State, stream: TextIO) -> None:
        self._state = state
        self._stream = stream

    def line(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed file
            print(text, file=self._stream, flush=True)

    def stage(self) -> None:
        self.line(f"{self._state.stage} ({self._state.elapsed})")

    def started(self) -> None:
        """Wait: the line comes with the result."""

    def done(self) -> None:
        n, entry = self._state.done[-1]
        cells = [f"trial {n}", one_line(entry.label), entry.purpose, *self._state.cells(entry)]
        if entry.reused:
            cells.append("from history")
        self.line("  ".join(cell for cell in cells if cell))

    def close(self) -> None:
        """Leave the stream as it is."""


class _Live:
    """Live table, with notes above it."""

    def __init__(self, state: _State, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._state = state
        self._live = Live(
            self,
            console=Console(file=stream),
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def line(self, text: str) -> None:
        from rich.text import Text

        with contextlib.suppress(OSError, ValueError):
            self._live.console.print(Text(text))

    def stage(self) -> None:
        self._refresh()

    def started(self) -> None:
        self._refresh()

    def done(self) -> None:
        self._refresh()

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._live.stop()

    def _refresh(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        state, width = self._state, options.max_width
        shown = [name for name, needed in COLUMNS.items() if width >= needed]
        head = "  ".join(part for part in (state.stage, state.elapsed) if part)
        yield Text(head, style="bold", no_wrap=True, overflow="ellipsis")

        table = Table(box=None, show_header=False, pad_edge=False, width=min(width, 100))
        for name in shown:
            table.add_column(
                no_wrap=True,
                overflow="ellipsis",
                justify="left" if name in ("candidate", "purpose") else "right",
                ratio=1 if name == "candidate" else None,  # what gives way first
            )

        def add(n: int, label: str, purpose: str, cells: list[str], style: str) -> None:
            row = dict(zip(COLUMNS, (str(n), one_line(label), purpose, *cells), strict=True))
            # Text, not str: a label must not be read as rich's own markup.
            table.add_row(*(Text(row[name]) for name in shown), style=style)

        for n, entry in state.done[-SHOWN_TRIALS:]:
            style = "" if entry.outcome == "ok" else "red"
            add(n, entry.label, entry.purpose, state.cells(entry), style)
        for n, label, purpose in list(state.running):
            add(n, label, purpose, ["running", "", "", ""], "dim")
        yield table
        if state.best:
            yield Text(state.best, no_wrap=True, overflow="ellipsis")


def _took(entry: TrialEntry) -> str:
    return "" if entry.wall_s is None else numbers.duration(entry.wall_s)


def _is_terminal(stream: TextIO) -> bool:
    """Tell whether `stream` can redraw its lines."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    except ValueError:  # closed
        return False
