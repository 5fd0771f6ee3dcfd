"""What a program left behind in its working directory and in its scratch outputs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from advisor.model import ResultFile
from advisor.sandbox.layers import LISTED_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ENTRIES_LIMIT = 50_000
"""Files looked at in a working directory; a larger tree is compared in part, and that is said."""
NAMED_LIMIT = 8
"""Files named in one note."""
SKIPPED = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".gpu-advisor",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", "site-packages",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Every file of a tree by relative path, with what shows that it was written to."""

    files: dict[str, tuple[int, int]]
    """mtime in ns, and size in bytes."""
    complete: bool


def snapshot(root: str, leave_out: str) -> Snapshot:
    """The files under `root`, without version control, environments, caches and `leave_out`."""
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
    """What a program left outside its scratch; names relative to its working directory."""

    created: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    """Files that were there before."""
    removed: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    """Places that were shown read-only."""
    thrown_away: bool = False
    """Nothing of it is there any more."""
    complete: bool = True

    @classmethod
    def exact(cls, changes: Mapping[str, list[str]], root: str, *, thrown_away: bool) -> Self:
        """As the isolation knows it."""
        created, altered, removed, sealed = (
            tuple(_shown(path, root) for path in changes[kind])
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
        """With files that the probe saw opened for writing, anywhere on the host."""
        known = {*self.created, *self.altered}
        names = {_shown(path, root) for path in paths if Path(path).exists()} - known
        old = {name for name in names if name in before.files}
        return replace(
            self,
            created=tuple(sorted({*self.created, *(names - old)})),
            altered=tuple(sorted({*self.altered, *old})),
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader should know of it besides what was created."""
        end = ", thrown away with the trial" if self.thrown_away else ""
        told = {"wrote to": self.altered, "removed": self.removed}
        notes = [f"the program {did} {_some(names)}{end}" for did, names in told.items() if names]
        if self.sealed:
            notes.append(f"{_some(self.sealed)} could only be shown read-only to the program")
        if not self.complete:
            notes.append(f"over {ENTRIES_LIMIT} files in the working directory: not compared")
        return tuple(notes)


def _some(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`"""
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return ", ".join(names[:NAMED_LIMIT]) + more


def compare(before: Snapshot, after: Snapshot) -> FilesystemChanges:
    """The difference of two snapshots of one tree; nothing if one of them is incomplete."""
    if not (before.complete and after.complete):
        return FilesystemChanges(complete=False)
    common = before.files.keys() & after.files.keys()
    return FilesystemChanges(
        created=tuple(sorted(after.files.keys() - before.files.keys())[:LISTED_LIMIT]),
        altered=tuple(sorted(n for n in common if before.files[n] != after.files[n])),
    )


def results(changes: Mapping[str, Any] | None, root: str) -> tuple[ResultFile, ...]:
    """The files of items, as the isolation read them; none where it could not."""
    return tuple(
        ResultFile(
            path=os.fsencode(_shown(each["path"], root)).decode(errors="replace"),
            items=each["items"],
            size_bytes=each["bytes"],
            first=tuple(tuple(item) for item in each["first"]),
            sampled=each["sampled"],
            digest=each["digest"],
        )
        for each in (changes or {}).get("results", ())
    )


def digest(folder: str) -> str | None:
    """SHA-256 over what the files below hold; None if there are none.

    Equal for two runs that produced the same, so it leaves out what differs by time or by the
    config alone: names (they carry time stamps) and the contents of text files (logs, metrics with
    timings, copies of the config), of which only number and suffix count.
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


def _shown(path: str, root: str) -> str:
    """Relative to the working directory where it lies inside."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120  a trailing slash stays
    base = os.path.realpath(root) + os.sep
    return real.removeprefix(base)
