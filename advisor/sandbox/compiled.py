"""A candidate that is Python is never taken for what Python compiled of another one.

Python believes a compiled file while the source's size and its time, in whole seconds, are those
it was compiled from, and a batch of 16 and one of 32 have the same size. So the time of a
candidate follows from its content.
"""

from __future__ import annotations

import contextlib
import os

_FIRST = 1_000_000_000
"""In 2001: no source of the user's is as old as it looks, and no two contents look alike."""


def date_by_content(path: str, content: bytes) -> None:
    """Give a Python file a time that no other content has; other files keep theirs."""
    if path.endswith(".py"):
        import hashlib  # 5 ms that other candidates need not wait for

        seconds = _FIRST + int(hashlib.sha256(content).hexdigest()[:7], 16)
        with contextlib.suppress(OSError):  # another user's: then it has the time of now
            os.utime(path, (seconds, seconds))
