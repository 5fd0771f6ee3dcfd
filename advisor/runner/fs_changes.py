"""File changes of a program, and output digests."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from advisor.runner.result_files import relative_name
from advisor.sandbox.layers import LISTED_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENTRIES_LIMIT = 50_000
"""Limit of compared files; a larger tree is compared in part with a note."""
NAMED_LIMIT = 8
"""Files named in one note."""
SKIPPED = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".gpu-advisor",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", "site-packages",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Files of a tree with their write marks."""

    files: dict[str, tuple[int, int]]
    """mtime in ns, and size in bytes."""
    complete: bool


def snapshot(root: str, leave_out: str) -> Snapshot:
    """Snapshot `root` without caches, environments and `leave_out`."""
    files: dict[str, tuple[int, int]] = {}
    for entry in _walk(root, os.path.realpath(leave_out)):
        if len(files) >= ENTRIES_LIMIT:
            return Snapshot(files=files, complete=False)
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        files[os.path.relpath(entry.path, root)] = (status.st_mtime_ns, status.st_size)
    return Snapshot(files=files, complete=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemChanges:
    """File changes outside scratch, relative to the directory."""

    created: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    """Files that were there before."""
    removed: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    """Places that were shown read-only."""
    thrown_away: bool = False
    """True if nothing of it remains."""
    complete: bool = True

    @classmethod
    def exact(cls, changes: Mapping[str, list[str]], root: str, *, thrown_away: bool) -> Self:
        """Build the changes that the isolation knows."""
        created, altered, removed, sealed = (
            tuple(relative_name(path, root) for path in changes[kind])
            for kind in ("created", "changed", "removed", "sealed")
        )
        return cls(
            created=created,
            altered=altered,
            removed=removed,
            sealed=sealed,
            thrown_away=thrown_away,
        )

    def and_written(self, paths: Iterable[str], root: str, before: Snapshot) -> FilesystemChanges:
        """Add files that the probe saw opened for writing."""
        known = {*self.created, *self.altered}
        names = {relative_name(path, root) for path in paths if Path(path).exists()} - known
        old = {name for name in names if name in before.files}
        return replace(
            self,
            created=tuple(sorted({*self.created, *(names - old)})),
            altered=tuple(sorted({*self.altered, *old})),
        )

    def notes(self) -> tuple[str, ...]:
        """Describe all but the created files."""
        end = ", thrown away with the trial" if self.thrown_away else ""
        did = {"wrote to": self.altered, "removed": self.removed}
        notes = [f"the program {verb} {_some(names)}{end}" for verb, names in did.items() if names]
        if self.sealed:
            notes.append(f"{_some(self.sealed)} could only be shown read-only to the program")
        if not self.complete:
            notes.append(f"over {ENTRIES_LIMIT} files in the working directory: not compared")
        return tuple(notes)


def _some(names: Sequence[str]) -> str:
    """Format a list as `a, b, c and 4 more`."""
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return ", ".join(names[:NAMED_LIMIT]) + more


def compare(before: Snapshot, after: Snapshot) -> FilesystemChanges:
    """Compare two complete snapshots of one tree."""
    if not (before.complete and after.complete):
        return FilesystemChanges(complete=False)
    common = before.files.keys() & after.files.keys()
    return FilesystemChanges(
        created=tuple(sorted(after.files.keys() - before.files.keys())[:LISTED_LIMIT]),
        altered=tuple(sorted(n for n in common if before.files[n] != after.files[n])),
    )


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
        if not _is_binary(file.read(8192)):
            return suffix + b" text"
        file.seek(0)
        return suffix + b" " + hashlib.file_digest(file, "sha256").hexdigest().encode()


def _is_binary(start: bytes) -> bool:
    try:
        start[:-4].decode("utf-8")
    except UnicodeDecodeError as problem:
        return problem.start < len(start) - 8 or b"\0" in start
    return b"\0" in start


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
