"""Whole files in one step."""

import contextlib
import fcntl
import os
from pathlib import Path

DRAFT = ".gpu-advisor-draft"


def draft_of(path: Path) -> Path:
    """Place of the draft of `path`."""
    return path.with_name(os.fsdecode(b"." + os.fsencode(path.name)[:200]) + DRAFT)


def place(path: Path, content: bytes, mode: int) -> None:
    """Replace the file at `path` atomically. Raises OSError.

    `path` is taken as it is: give a real path to write through a symbolic link. One draft beside
    it serves every call; its lock makes them take turns, and a killed call's draft is used again.
    """
    draft = draft_of(path)
    while True:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(draft, handle):  # another call put it in place meanwhile
                continue
            try:
                os.ftruncate(handle, 0)
                with os.fdopen(handle, "wb", closefd=False) as file:
                    file.write(content)
                os.fchmod(handle, mode)
                os.fsync(handle)
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        finally:
            os.close(handle)
        sync_folder(path.parent)
        return


def sync_folder(folder: Path) -> None:
    """Flush renames in `folder` to disk where possible."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False
