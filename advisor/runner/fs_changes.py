"""File changes of a program, and output digests."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.runner.result_files import relative_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENTRIES_LIMIT = 50_000
"""Limit of compared files; a larger tree is not compared."""
NAMED_LIMIT = 8
"""Files named in one note."""
SKIPPED = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".gpu-advisor",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", "site-packages",
}  # fmt: skip

Snapshot = dict[str, tuple[int, int]]
"""Time of the last write in ns, and size in bytes, by relative name."""


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


def compared_changes(before: Snapshot, after: Snapshot, opened: Iterable[str]) -> FilesystemChanges:
    """Changes between two snapshots, and files that the probe saw opened for writing."""
    if max(len(before), len(after)) > ENTRIES_LIMIT:
        note = f"over {ENTRIES_LIMIT} files in the working directory: not compared"
        return FilesystemChanges(notes=(note,))
    written = {name for name in after if before.get(name) != after[name]} | set(opened)
    altered = sorted(written & before.keys())
    return FilesystemChanges(
        created=sorted(written - before.keys()),
        altered=altered,
        notes=_note("the program wrote to", altered),
    )


def _note(verb: str, names: Sequence[str], end: str = "") -> tuple[str, ...]:
    """Format `verb a, b, c and 4 more`; nothing without names."""
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return (f"{verb} {', '.join(names[:NAMED_LIMIT])}{more}{end}",) if names else ()


def snapshot(root: str, leave_out: str) -> Snapshot:
    """Snapshot `root` without caches, environments and `leave_out`."""
    files: Snapshot = {}
    for entry in _walk(root, os.path.realpath(leave_out)):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        files[relative_name(entry.path, root)] = (status.st_mtime_ns, status.st_size)
        if len(files) > ENTRIES_LIMIT:
            break
    return files


def _walk(root: str, leave_out: str) -> Iterator[os.DirEntry[str]]:
    folders = [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                inside = list(entries)
        except OSError:
            continue
        if any(entry.name == "pyvenv.cfg" for entry in inside):
            continue
        for entry in inside:
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif entry.name not in SKIPPED and os.path.realpath(entry.path) != leave_out:
                folders.append(entry.path)


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
