"""File changes of a program, and output digests."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.runner.result_files import relative_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.runner.process_records import ProcessRecord

NAMED_LIMIT = 8
"""Files named in one note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemChanges:
    """File changes outside scratch, relative to the directory."""

    created: Sequence[str] = ()
    altered: Sequence[str] = ()
    """Files that were there before."""
    removed: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    """Sentences on all but the created files."""


def isolated_changes(
    changes: Mapping[str, Any], root: str, *, thrown_away: bool
) -> FilesystemChanges:
    """Changes as the isolation knows them."""
    created, altered, removed, sealed = (
        [relative_name(path, root) for path in changes[kind]]
        for kind in ("created", "changed", "removed", "sealed")
    )
    end = ", thrown away with the trial" if thrown_away else ""
    notes = (
        *_note("the program wrote to", altered, end),
        *_note("the program removed", removed, end),
        *_note("shown read-only to the program:", sealed),
    )
    return FilesystemChanges(created=created, altered=altered, removed=removed, notes=notes)


def guarded_changes(processes: Iterable[ProcessRecord], root: str) -> FilesystemChanges:
    """Changes that the probe saw Python make, where nothing isolates the program."""
    processes = list(processes)
    altered = sorted({relative_name(path, root) for each in processes for path in each.altered})
    made = {path for each in processes for path in each.writes if Path(path).exists()}
    return FilesystemChanges(
        created=sorted({relative_name(path, root) for path in made} - set(altered)),
        altered=altered,
        notes=_note("the program changed or removed", altered),
    )


def _note(verb: str, names: Sequence[str], end: str = "") -> tuple[str, ...]:
    """Format `verb a, b, c and 4 more`; nothing without names."""
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return (f"{verb} {', '.join(names[:NAMED_LIMIT])}{more}{end}",) if names else ()


def digest(folder: str) -> str | None:
    """Return SHA-256 over all files below, or None.

    It is equal for runs that produced the same. Names carry time stamps, and text files hold logs
    and copies of the config, so of these only number and suffix count.
    """
    marks = sorted(_mark(path) for path in Path(folder).rglob("*") if path.is_file())
    return hashlib.sha256(b"\n".join(marks)).hexdigest() if marks else None


def _mark(path: Path) -> bytes:
    """Suffix, and the content's digest unless it is text."""
    suffix = os.fsencode(path.suffix.lower())
    with path.open("rb") as file:
        if b"\0" not in file.read(8192):
            return suffix + b" text"
        file.seek(0)
        return suffix + b" " + hashlib.file_digest(file, "sha256").hexdigest().encode()
