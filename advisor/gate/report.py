"""A gate's record as files: gate.md, gate.json, the comment's body, figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import files
from advisor.errors import OutputRefusedError
from advisor.gate import figures, texts, view
from advisor.report.markdown import as_markdown
from advisor.report.rendering import template

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.gate.records import GateRecord

DEFAULT_NAME = "gate.md"
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


def claim(path: Path, *, never: Iterable[Path] = (), overwrite: bool = False) -> files.Claim:
    """The places of a report: `path`, and beside it, with the same stem, JSON, comment and figures.

    To be called before anything is measured; `never` are files that must stay. Raises
    OutputRefusedError when one of the places is another's, or cannot be written.
    """
    if path.is_dir() or path.name in {"", ".", ".."}:
        msg = f"--report {path} is a folder; name a file in it: {path / DEFAULT_NAME}."
        raise OutputRefusedError(msg)
    if path.suffix == ".json":
        msg = f"{path} would be overwritten by the JSON beside it; name the report *.md."
        raise OutputRefusedError(msg)
    real = Path(os.path.realpath(path))
    figures_ = (_figures(real) / name for name in figures.FILES)
    places = [real, real.with_suffix(".json"), _comment(real), *figures_]
    return files.claim(places, never=never, overwrite=overwrite)


def write(record: GateRecord, path: Path, claimed: files.Claim) -> None:
    """Write the report into the places that `claim` found; a figure without data goes.

    Raises OutputRefusedError when a place cannot be written.
    """
    path = Path(os.path.realpath(path))
    claimed.write(path.with_suffix(".json"), texts.dump(record).encode())
    for place, text in ((path, markdown(record)), (_comment(path), comment(record))):
        claimed.write(place, f"{text}\n{files.MARKS['.md']}\n".encode(errors="replace"))
    for name, svg in figures.draw(record).items():
        place = _figures(path) / name
        if svg:
            claimed.write(place, f"{svg}{files.MARKS['.svg']}\n".encode())
        else:
            claimed.remove(place)


def _comment(path: Path) -> Path:
    return path.with_name(f"{path.stem}-comment.md")


def _figures(path: Path) -> Path:
    return path.with_name(f"{path.stem}-figures")
