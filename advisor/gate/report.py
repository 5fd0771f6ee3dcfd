"""A gate's record as files: gate.md, gate.json, the comment's body, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.errors import ReportError
from advisor.gate import figures, records, view
from advisor.report.markdown import as_markdown
from advisor.report.rendering import template

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.gate.records import GateRecord

MARKER = "<!-- gpu-advisor gate -->"
"""First line of a sticky comment, by which the next gate finds and replaces it."""


def markdown(record: GateRecord) -> str:
    """The whole report; a pure function of the record."""
    return template("gate_report.md.j2", record=record, view=view)


def comment(record: GateRecord) -> str:
    """The body of a pull request comment."""
    return template("gate_comment.md.j2", record=record, view=view, marker=as_markdown(MARKER))


def lines(record: GateRecord) -> str:
    """The five lines alone, for a terminal."""
    return template("gate_lines.md.j2", record=record, view=view)


def write(record: GateRecord, path: Path) -> None:
    """Write the report to `path`; JSON, comment and figures beside it with the same stem.

    Raises ReportError when the place cannot be written.
    """
    try:
        records.write(record, path.with_suffix(".json"))
        path.write_text(markdown(record), encoding="utf-8")
        path.with_name(f"{path.stem}-comment.md").write_text(comment(record), encoding="utf-8")
        figures.write(record, path.with_name(f"{path.stem}-figures"))
    except OSError as problem:
        msg = f"The report could not be written to {path}: {problem}. Choose another --report."
        raise ReportError(msg) from problem
