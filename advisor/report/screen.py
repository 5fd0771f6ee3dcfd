"""First screen of a report, on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from advisor.report import sections
from advisor.report.progress import is_terminal

if TYPE_CHECKING:
    from advisor.report.schema import Report

FIRST = (
    sections.verdict,
    sections.before_and_after,
    sections.config_diff,
    sections.run_and_undo,
    sections.next_actions,
)


def show(report: Report, stream: TextIO | None = None) -> bool:
    """Print verdict, table, diff and commands in colour.

    Returns False, with nothing printed, on anything but a colour terminal.
    """
    stream = stream or sys.stdout
    if not is_terminal(stream):
        return False
    from rich.console import Console
    from rich.markdown import Markdown

    page = sections.Page(report=report, stem=Path(report.report).stem)
    text = "\n\n".join(filter(None, (section(page) for section in FIRST)))
    console = Console(file=stream)
    console.print(Markdown(f"{text}\n\nReport: `{report.report}`"), width=min(console.width, 110))
    return True
