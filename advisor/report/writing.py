"""report.json and what is drawn from it, on disk: written whole or not at all, read with care."""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor.errors import ReportError
from advisor.report import figures, rendering
from advisor.report.model import HEADLINE, SCHEMA_VERSION, Report


def write(report: Report, report_md: Path) -> None:
    """Write `report_md`, and beside it, with the same stem, the JSON and the figures.

    Raises ReportError when the place cannot be written.
    """
    if report_md.suffix == ".json":
        msg = f"{report_md} would be overwritten by the JSON beside it; name the report *.md."
        raise ReportError(msg)
    report_md = Path(os.path.realpath(report_md))
    folder = report_md.with_name(f"{report_md.stem}-figures")
    try:
        report_md.parent.mkdir(parents=True, exist_ok=True)
        # The record first: if drawing fails, everything can be drawn from it again.
        _replace(report_md.with_suffix(".json"), dump(report))
        drawn = figures.draw(report, folder)
        _write_patches(report, report_md)
        _replace(
            report_md, rendering.render(report, folder.name if drawn else None, report_md.stem)
        )
    except OSError as problem:
        msg = f"The report could not be written to {report_md}: {problem}. Choose another --report."
        raise ReportError(msg) from problem


def load(path: Path) -> Report:
    """The report in `path`. Raises ReportError with what is wrong: it is not there, not JSON,
    of another schema version, or a field does not hold what it should."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        msg = f"{path} could not be read: {problem.strerror}. Name the report.json of a run."
        raise ReportError(msg) from problem
    except ValueError as problem:
        msg = f"{path} is not JSON: {problem}. Name the report.json, not the report.md."
        raise ReportError(msg) from problem
    version = fields.get("schema_version") if isinstance(fields, dict) else None
    if version != SCHEMA_VERSION:
        msg = (
            f"{path} has schema_version {version!r}; this gpu-advisor reads {SCHEMA_VERSION}. "
            "Render it with the version that wrote it."
        )
        raise ReportError(msg)
    try:
        return Report.model_validate(fields)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        msg = f"{path}: {where}: {first['msg']} (found {first['input']!r:.80})."
        raise ReportError(msg) from problem


def dump(report: Report) -> str:
    """`report` as the text of report.json."""
    return report.model_dump_json(by_alias=True, indent=2) + "\n"


def headline(report: Report) -> dict[str, Any]:
    """The one object that `optimize --json` prints."""
    fields = report.model_dump(mode="json", by_alias=True)
    return {key: fields[key] for key in HEADLINE}


def _write_patches(report: Report, report_md: Path) -> None:
    """One file for each advice that has a patch; those of an earlier report go."""
    for old in report_md.parent.glob(f"{glob.escape(report_md.stem)}-advice-*.patch"):
        old.unlink()
    for number, entry in enumerate(report.advice, 1):
        if entry.patch:
            name = rendering.patch_file(report_md.stem, number)
            _replace(report_md.with_name(name), entry.patch)


def _replace(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(content, encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
