"""Files that somebody names: read whole, never blocking, never without end."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 64 * 1024 * 1024
"""Largest record that is read; real ones are below 1 MiB."""
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Type of what is no regular file to its name."""


def read_whole(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError, also for what is none or has too many."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            msg = "it is no regular file"
            raise OSError(msg)
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        msg = f"it has more than {MAX_BYTES // 2**20} MiB"
        raise OSError(msg)
    return content
