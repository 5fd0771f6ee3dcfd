"""Progress on stderr, live or by line; a lost stream stops no work."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal, Self, TextIO

from advisor import numbers
from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, TrialResult
from advisor.machine.contention import in_words
from advisor.model import UNFINISHED, Failure, Interval, Run
from advisor.objective import THROUGHPUT
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
    "whatif": "suggestions: changes that only you may make",
    "profile": "profile: the command as it is",
}
"""Stage in words, by the purpose of its trials."""
THEN = {
    "baseline": "the search",
    "effects": "the search",
    "search": "the proof, in interleaved rounds",
    "quality": "the proof, in interleaved rounds",
    "confirm": "the report, or further changes while there is budget",
    "whatif": "the report",
    "compare": "the table, ranked",
}
"""What follows a stage, in words, by the same purposes."""
COMPARABLE = ("baseline", "search", "confirm", "whatif", "profile")
"""Purposes of trials whose variants stand in the live table, with their rates."""
RULED_ON = ("confirm", "whatif")
"""Purposes of comparisons whose outcome has a line; others end in a table of their own."""
MOST_ROWS = 8
"""Most variants in the live table: the original and the fastest ones.

Judgement: more push the log off a screen of 24 lines, fewer hide what the search still weighs."""
WIDEST = 110
"""Columns of the first screen on a wider terminal: longer lines of text read badly. Judgement."""


class Progress:
    """Progress of stages and trials; a live view while entered."""

    def __init__(
        self, *, unit: str, budget_s: float | None = None, stream: TextIO | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._units = numbers.plural(unit)
        self._budget_s = budget_s
        self._began = time.monotonic()
        self._stage = self._round = self._trial = self._status = self._then = ""
        self._others = ""
        """What other programs took beside the last trial; empty where it ran undisturbed."""
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
        """Write one line that stays, above the live view."""
        self._print(one_line(text), above_view=True)

    def _print(self, line: str, *, above_view: bool = False) -> None:
        """Write a line; a live view shows in its own way all that is not for `above_view`."""
        with contextlib.suppress(OSError, ValueError):  # a closed pipe, a closed file
            if self._live is None:
                print(line, file=self._stream, flush=True)
            elif above_view:
                self._live.console.print(line)

    def status(self, text: str) -> None:
        """Latest state of what runs; only a live view shows it."""
        self._status = one_line(text)

    def stage(self, name: str) -> None:
        """Begin a stage; `name` is the purpose of its trials, a key of STAGES."""
        self._stage, self._round = STAGES[name], ""
        self._then = f"then: {THEN[name]}" if name in THEN else ""
        self._print(f"{self._stage} ({self._elapsed()})")

    def trial_started(self, number: int, label: str) -> None:
        """Show that process `number` of this call runs now."""
        self._trial = f"now: trial {number}, {one_line(label)}"

    def round_done(
        self, counted: int, planned: int, label: str, gain: Interval | None
    ) -> None:
        """Show the round after the `counted` that count so far, and the gain of those."""
        so_far = f", {Gain.of(gain).text} so far" if gain else ""  # type: ignore[union-attr]
        running = min(counted + 1, planned)
        self._round = f"round {running} of {planned}: {one_line(label)}{so_far}"

    def compared(self, done: Comparison) -> None:
        """Write what the rounds of a comparison showed, however they ended."""
        self._round = ""
        if done.ab_test.purpose in RULED_ON and done.ab_test.names[-1] == AFTER:
            self.note(f"{one_line(done.ab_test.requests[-1].label)}: {_showed(done)}")

    def trial_done(self, attempt: TrialResult) -> None:
        """Write a line on a result, and add it to the live table."""
        self._trial = self._status = ""
        load = attempt.run.disturbance if attempt.run else None
        self._others = one_line(in_words(load)) if load and load.disturbed else ""
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
        """What a line tells of a trial: rate, wait and memory, or how it failed; time; load."""
        result = attempt.result
        if isinstance(result, Failure):
            yield result.kind
        else:
            counted = result.counted if result.counted in UNFINISHED else None
            units = numbers.plural(counted) if counted else self._units
            yield f"{numbers.number(result.units_per_s)} {units}/s"
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

        width = min(40, options.max_width // 5)  # columns of a bar
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
    """Rate and cells of each variant: the original, the fastest ones, then those that failed.

    `tried`: results by label, the original first. A variant's rate is the median of its runs, 0
    without any.
    """
    runs = {
        label: [result for result in results if isinstance(result, Run)]
        for label, results in tried.items()
    }
    rates = {
        label: median(run.units_per_s for run in some)
        for label, some in runs.items()
        if some
    }
    original, *others = runs
    others.sort(key=lambda label: -rates.get(label, 0.0))
    for label in [original, *others][:MOST_ROWS]:
        last, rate, gain = tried[label][-1], rates.get(label), ""
        if rate and rates.get(original):
            gain = numbers.ratio(rate / rates[original])
        figure = last.kind if isinstance(last, Failure) else numbers.number(rate)
        peak_gib = max((run.peak_mem_gib or 0.0 for run in runs[label]), default=0.0)
        memory = numbers.gib(peak_gib) if peak_gib else ""
        yield rate or 0.0, [label, figure, gain, str(len(tried[label])), memory]


def _showed(done: Comparison) -> str:
    """`1.42x (1.10 to 1.80) in 3 of 6 rounds; the budget ended them`."""
    if done.failure is not None:
        return f"{done.failure.kind} in its rounds, so no gain is proven"
    counted, gain = len(done.counted), Gain.of(done.interval(THROUGHPUT))
    rounds, end = numbers.many(counted, "round"), ""
    if done.cut_short:
        rounds = f"{counted} of {numbers.many(done.ab_test.rounds, 'round')}"
        end = "; the budget ended them"
    if gain is None and counted:
        (log_gain,) = done.log_gains(THROUGHPUT, AFTER, done.counted[:1])
        return f"{numbers.ratio(math.exp(log_gain))} in {rounds}, too few to tell{end}"
    return f"{gain.text if gain else 'nothing'} in {rounds}{end}"


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal that can redraw lines in colour, unless plain text is wanted.

    NO_COLOR asks for it, and CI keeps every line as it was written.
    """
    wants_plain = os.environ.get("NO_COLOR") or os.environ.get("CI")
    can_redraw = os.environ.get("TERM", "") not in {"", "dumb", "unknown"}
    try:
        return stream.isatty() and can_redraw and not wants_plain
    except ValueError:  # closed
        return False


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
    console.print(Markdown(text), width=min(console.width, WIDEST))
