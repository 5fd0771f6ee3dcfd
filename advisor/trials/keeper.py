"""Removes a folder once the process that asked for it is gone, even by kill -9.

Run as `python -I -S keeper.py FOLDER`, standard library only. stdin: a pipe whose end is that
process's end. What still works in the folder has guardians of its own; it is waited for.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

LIMIT_S = 30.0
"""Guardians that were left alone need a few seconds to end their programs."""


def main() -> None:
    """Wait, then remove."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    folder = Path(sys.argv[1])
    deadline = time.monotonic() + LIMIT_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
