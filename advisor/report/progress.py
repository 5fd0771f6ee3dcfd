"""Progress on stderr: one line a trial, and on a terminal also what runs.

A stream that has gone away is ignored: progress never stops the work.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, TextIO

from advisor import numbers
from advisor.executor.requests import TrialResult
from advisor.model import Failure
from advisor.report.markdown import one_line

if TYPE_CHECKING:
    from rich.console import RenderResult

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


class Progress:
    """Lines of stages and trials; a live status below them while it is entered."""

    def __init__(
        self,
        *,
        unit: str,
        budget_s: float | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._stream = stream or sys.stderr
        self._units = numbers.plural(unit)
        self._budget_s = budget_s
        self._began = time.monotonic()
        self._number = 1
        self._trial = self._status = ""
        self._live = None
        if is_terminal(self._stream):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, markup=False, emoji=False, highlight=False)
            self._live = Live(self, console=console, redirect_stdout=False, redirect_stderr=False)

    def note(self, text: str) -> None:
        """One line that stays."""
        self._write(one_line(text))

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed file
            if self._live is not None:
                self._live.console.print(line)
            else:
                print(line, file=self._stream, flush=True)

    def status(self, text: str) -> None:
        """Latest state of what runs; only a terminal shows it."""
        self._status = one_line(text)

    def stage(self, name: str) -> None:
        """Begin the stage with this purpose."""
        self.note(f"{STAGES.get(name, name)} ({self._elapsed()})")

    def trial_started(self, number: int, label: str) -> None:
        """Show process `number` of this call."""
        self._number = number
        self._trial = f"now: trial {number}, {one_line(label)}"

    def trial_done(self, attempt: TrialResult) -> None:
        """Show the result of a trial."""
        self._trial = self._status = ""
        facts = (f"trial {self._number}", one_line(attempt.label), attempt.request.purpose)
        self._write("  ".join((*facts, *self._facts(attempt))))

    def trial_stopped(self, label: str, why: str) -> None:
        """Say that a limit of ours ended a process."""
        self.note(f"{label}: stopped by gpu-advisor, {why}")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was found."""
        with contextlib.suppress(OSError, ValueError):
            if self._live is not None:
                self._live.stop()

    def _elapsed(self) -> str:
        """`1 min 12 s of 10 min`."""
        spent = numbers.duration(float(round(time.monotonic() - self._began)))
        return f"{spent} of {numbers.duration(self._budget_s)}" if self._budget_s else spent

    def _facts(self, attempt: TrialResult) -> Iterator[str]:
        """Rate, wait, memory and time, or how it failed."""
        result = attempt.result
        if isinstance(result, Failure):
            yield result.kind
        else:
            yield numbers.quantity(result.units_per_s, f"{self._units}/s")
            if result.wait_share is not None:
                yield f"wait {numbers.percent(result.wait_share)}"
            if result.peak_mem_gib is not None:
                yield f"peak {numbers.gib(result.peak_mem_gib)}"
        yield numbers.duration(result.wall_s)
        if attempt.reused:
            yield "from history"

    def __rich_console__(self, *_: object) -> RenderResult:
        from rich.text import Text

        for line in filter(None, (self._elapsed(), self._trial, self._status)):
            yield Text(line, no_wrap=True, overflow="ellipsis")


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal that takes colours and can redraw its lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI")
    try:
        terminal = stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    except ValueError:  # closed
        return False
    return terminal and not plain
