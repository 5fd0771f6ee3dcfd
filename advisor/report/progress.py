"""Progress on stderr, live or by line; a lost stream stops no work."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal, Self, TextIO

from advisor import numbers
from advisor.executor.requests import TrialResult
from advisor.machine.contention import in_words
from advisor.model import Failure, Interval, Run
from advisor.report import view
from advisor.report.markdown import one_line
from advisor.report.schema import Gain, Report

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


STAGES = {
    "baseline": "baseline: the command as it is",
    "effects": "discover: settings that the program follows",
    "search": "search: batch, workers and other settings",
    "confirm": "confirm: original against candidate, in interleaved rounds",
    "compare": "compare: all variants, in interleaved rounds",
    "quality": "quality: the declared measures of the candidate",
    "whatif": "code suggestions: changes that are not applied",
    "profile": "profile: the command as it is",
}
"""Purpose of trials to the stage, in words."""
THEN = {
    "baseline": "the search",
    "effects": "the search",
    "search": "the proof, in interleaved rounds",
    "quality": "the proof, in interleaved rounds",
    "confirm": "the report, or further changes while there is budget",
    "whatif": "the report",
    "compare": "the table, ranked",
}
"""What follows a stage."""
COMPARABLE = ("baseline", "search", "confirm", "profile")
"""Purposes of trials with comparable throughputs."""
MOST_ROWS = 8
"""Variants in the live table: the original and the fastest ones."""


class Progress:
    """Progress of stages and trials; a live view while entered."""

    def __init__(
        self, *, unit: str, budget_s: float | None = None, stream: TextIO | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._units = numbers.plural(unit)
        self._budget_s = budget_s
        self._began = time.monotonic()
        self._stage = self._trial = self._status = self._others = ""
        self._round = self._then = ""
        self._variants: dict[str, tuple[Run | Failure, ...]] = {}
        """Results by label, the original first; replaced whole, as a thread draws them."""
        self._live = None
        if is_terminal(self._stream):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, markup=False, emoji=False, highlight=False)
            self._live = Live(
                self, console=console, redirect_stdout=False, redirect_stderr=False
            )

    def note(self, text: str) -> None:
        """One line that stays."""
        self._print(one_line(text), above_view=True)

    def _print(self, line: str, *, above_view: bool = False) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed file
            if self._live is None:
                print(line, file=self._stream, flush=True)
            elif above_view:
                self._live.console.print(line)

    def status(self, text: str) -> None:
        """Latest state of what runs; only a live view shows it."""
        self._status = one_line(text)

    def stage(self, name: str) -> None:
        self._stage, self._round = STAGES[name], ""
        self._then = f"then: {THEN[name]}" if name in THEN else ""
        self._print(f"{self._stage} ({self._elapsed()})")

    def trial_started(self, number: int, label: str) -> None:
        """Show process `number` of this call."""
        self._trial = f"now: trial {number}, {one_line(label)}"

    def round_done(
        self, number: int, planned: int, label: str, gain: Interval | None
    ) -> None:
        """Show the round that runs now, and the gain of those before."""
        so_far = f", {Gain.of(gain).text} so far" if gain else ""  # type: ignore[union-attr]
        now = min(number + 1, planned)
        self._round = f"round {now} of {planned}: {one_line(label)}{so_far}"

    def trial_done(self, attempt: TrialResult) -> None:
        self._trial = self._status = ""
        seen = attempt.run.disturbance if attempt.run else None
        self._others = one_line(in_words(seen)) if seen and seen.disturbed else ""
        label, purpose = one_line(attempt.request.label), attempt.request.purpose
        if purpose in COMPARABLE and not attempt.repeated:
            results = (*self._variants.get(label, ()), attempt.result)
            self._variants = {**self._variants, label: results}
        number = "kept run" if attempt.reused else f"trial {int(attempt.id)}"
        self._print("  ".join((number, label, purpose, *self._facts(attempt))))

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
            yield f"{numbers.number(result.units_per_s)} {self._units}/s"
            if result.wait_share is not None:
                yield f"wait {numbers.percent(result.wait_share)}"
            if result.peak_mem_gib is not None:
                yield f"peak {numbers.gib(result.peak_mem_gib)}"
        yield numbers.duration(result.wall_s)
        if self._others and not attempt.reused:
            yield self._others

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The live view; rich draws it from a thread of its own, several times a second."""
        from rich.bar import Bar
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        def lines(*texts: str) -> Iterator[Text]:
            return (Text(line, no_wrap=True, overflow="ellipsis") for line in texts if line)

        width = min(40, options.max_width // 5)
        yield from lines(self._stage, self._elapsed())
        if self._budget_s:
            spent_s = time.monotonic() - self._began
            yield ProgressBar(total=self._budget_s, completed=spent_s, width=2 * width)
            yield Text()  # ends its line
        table = Table(box=None, pad_edge=False, header_style="dim")
        for head in ("variant", f"{self._units}/s", "", "gain", "runs", "memory"):
            side: Literal["left", "right"] = "left" if head in {"variant", ""} else "right"
            table.add_column(head, no_wrap=True, overflow="ellipsis", justify=side)
        rows = list(_rows(self._variants)) if self._variants else []
        fastest = max((rate for rate, _ in rows), default=0.0) or 1.0
        for rate, cells in rows:
            label, figure, *others = map(Text, cells)  # a label is no markup
            bar = Bar(fastest, 0.0, rate, width=width, color="green")
            table.add_row(label, figure, bar, *others)
        yield from [table] if table.rows else []
        yield from lines(self._round, self._trial, self._status, self._others, self._then)


def _rows(
    tried: Mapping[str, Sequence[Run | Failure]],
) -> Iterator[tuple[float, list[str]]]:
    """Rate and cells of variants: original, fastest ones, failures."""
    runs = {label: [r for r in some if isinstance(r, Run)] for label, some in tried.items()}
    rates = {
        label: median(r.units_per_s for r in some) for label, some in runs.items() if some
    }
    original, *others = runs
    for label in [original, *sorted(others, key=lambda label: -rates.get(label, 0.0))][
        :MOST_ROWS
    ]:
        last, rate, gain = tried[label][-1], rates.get(label), ""
        if rate and rates.get(original):
            gain = numbers.ratio(rate / rates[original])
        figure = last.kind if isinstance(last, Failure) else numbers.number(rate)
        peak = max((run.peak_mem_gib or 0.0 for run in runs[label]), default=0.0)
        memory = numbers.gib(peak) if peak else ""
        yield rate or 0.0, [label, figure, gain, str(len(tried[label])), memory]


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal with colours that can redraw its lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI")
    try:
        terminal = stream.isatty() and os.environ.get("TERM", "") not in (
            "",
            "dumb",
            "unknown",
        )
    except ValueError:  # closed
        return False
    return terminal and not plain


def show(report: Report, stream: TextIO | None = None) -> None:
    """Print the first screen: in colour on a terminal, else as Markdown."""
    stream = stream or sys.stdout
    text = view.first_screen(report)
    if not stream.isatty():
        stream.write(f"{text}\n")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=stream, no_color=not is_terminal(stream))
    console.print(Markdown(text), width=min(console.width, 110))
