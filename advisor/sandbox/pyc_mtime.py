"""Modification time of Python candidates against stale bytecode."""

from __future__ import annotations

import contextlib
import os

_FIRST_TIME = 1_000_000_000
"""In 2001: no source of the user's has such a time."""


def set_content_mtime(path: str, content: bytes) -> None:
    """Set a modification time derived from the content.

    Python trusts a compiled file by the source's size and second. A candidate of the same size
    would be taken for another one.
    """
    if path.endswith(".py"):
        import hashlib  # 5 ms that other candidates need not wait for

        seconds = _FIRST_TIME + int(hashlib.sha256(content).hexdigest()[:7], 16)
        with contextlib.suppress(OSError):  # another user's file keeps its own time
            os.utime(path, (seconds, seconds))
