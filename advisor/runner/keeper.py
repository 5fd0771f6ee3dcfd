"""Removes a folder once the process that asked for it is gone, even by kill -9.

Run as `python -I -S keeper.py FOLDER`, standard library only. stdin: a pipe whose end is that
process's end. What still works in the folder has supervisors of its own; it is waited for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

LIMIT_S = 30.0
"""Guardians that were left alone need a few seconds to end their programs."""


def main() -> None:
    """Wait, then remove."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    folder = sys.argv[1]
    deadline = time.monotonic() + LIMIT_S
    while os.path.exists(folder) and time.monotonic() < deadline:
        remove(folder)
        time.sleep(0.05)


def remove(folder: str) -> None:
    """All that lies in `folder`; an overlay leaves folders that nobody may enter."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK) and not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
