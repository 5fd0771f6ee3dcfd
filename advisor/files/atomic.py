"""Whole files in one step."""

import contextlib
import os
import tempfile
from pathlib import Path

DRAFT = ".gpu-advisor-draft"
"""Ending of drafts, which begin with a dot and their file's name."""


def place(path: Path, content: bytes, mode: int) -> None:
    """Replace the file, or symbolic link, at `path` atomically. Raises OSError."""
    start = os.fsdecode(b"." + os.fsencode(path.name)[:200])
    handle, draft = tempfile.mkstemp(DRAFT, start, path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush renames in `folder` to disk where possible."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
