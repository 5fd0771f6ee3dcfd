"""First screen of a report, at the end of a call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from advisor.report import sections
from advisor.report.progress import is_terminal
from advisor.report.schema import Report


def show(report: Report, stream: TextIO | None = None) -> None:
    """Print verdict, table, diff and commands: in colour on a terminal, else as Markdown."""
    stream = stream or sys.stdout
    page = sections.Page(report=report, stem=Path(report.report).stem)
    parts = [section(page) for section in sections.FIRST_SCREEN]
    text = "\n\n".join(filter(None, (*parts, f"Report: `{report.report}`")))
    if not is_terminal(stream):
        stream.write(f"{text}\n")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=stream)
    console.print(Markdown(text), width=min(console.width, 110))
