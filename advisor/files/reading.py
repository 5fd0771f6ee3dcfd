"""Bounded, non-blocking reads of files from users."""

from __future__ import annotations

import errno
import os
import stat
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
"""Name of each type that is no regular file."""


def read_whole(path: Path, limit_bytes: int = MAX_BYTES) -> bytes:
    """Read a regular file whole. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            kind = KINDS.get(stat.S_IFMT(facts.st_mode), "no regular file")
            raise OSError(errno.EINVAL, f"is {kind}")
        if not facts.st_mode & 0o444:
            raise OSError(errno.EACCES, "has no read permission")
        content, size = b"", facts.st_size
        while size <= limit_bytes and (piece := os.read(handle, 1 << 20)):
            content += piece
            size = max(size, len(content))  # it grew, or gives no size, as files of /proc do
    finally:
        os.close(handle)
    if size > limit_bytes:
        limit = f"more than {limit_bytes // 2**20} MiB is not read"
        raise OSError(errno.EFBIG, f"is {size / 2**20:.1f} MiB; {limit}")
    return content
