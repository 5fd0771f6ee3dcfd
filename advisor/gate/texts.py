"""A record as text: gate.json read and written, the line of --json, and no secret in either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from advisor import files, masking
from advisor.errors import ReportError
from advisor.gate.records import SCHEMA_VERSION, GateRecord, Headline

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> GateRecord:
    """The record in `path`. Raises ReportError if it is missing, malformed, or another version."""
    try:
        text = files.read_whole(path).decode()
    except (OSError, UnicodeDecodeError) as problem:
        msg = f"{path} cannot be read: {problem}. Give a gate.json that `gpu-advisor gate` wrote."
        raise ReportError(msg) from problem
    try:
        return GateRecord.model_validate_json(text)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        msg = (
            f"{path} is no gate record of version {SCHEMA_VERSION}: {where}: {first['msg']}. "
            "Give a gate.json that this version of gpu-advisor wrote."
        )
        raise ReportError(msg) from problem


def dump(record: GateRecord) -> str:
    """`record` as the text of gate.json; NaN and infinity cannot occur in it."""
    return record.model_dump_json(indent=1) + "\n"


def masked(record: GateRecord) -> GateRecord:
    """`record` without what looks like a secret."""
    return GateRecord.model_validate(masking.mask_value(record.model_dump()))


def headline(record: GateRecord) -> str:
    """The one object that `--json` prints."""
    found = Headline(**{name: getattr(record, name) for name in Headline.model_fields})
    return found.model_dump_json()
