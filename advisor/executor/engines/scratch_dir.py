"""Scratch folder of a call, and early end of trials."""

import contextlib
import fcntl
import os
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import StateUnusableError, TrialFailedError
from advisor.sandbox.layers import remove_tree

PREFIX = "gpu-advisor-call-"
YOUNG_S = 60.0
"""Age in seconds below which a folder is left alone: it may be about to be locked.

Judgement: shorter may remove the folder of a call that a busy host holds up before its lock. Longer
only leaves what a dead call left to a later one."""
LEAST_BYTES = 4 << 20
"""Records, logs and a program's temporary files need some room."""
LEAST_FILES = 64
"""Inodes of one trial: its folders, a record and a log for each process."""


def require_room(folder: str | Path) -> None:
    """Require disk room for trial files. Raises TrialFailedError."""
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if space.f_files and space.f_favail < LEAST_FILES:
        msg = (
            f"{tempfile.gettempdir()}, where trials keep their files, has room for "
            f"{space.f_favail} more files (inodes). Remove files there, or set TMPDIR to another "
            "disk."
        )
        kind = "disk-full"
        raise TrialFailedError(kind, msg)
    if space.f_blocks and free < LEAST_BYTES:
        msg = (
            f"{tempfile.gettempdir()}, where trials keep their files, has {free >> 10} KiB left. "
            "Free space there, or set TMPDIR to another disk."
        )
        kind = "disk-full"
        raise TrialFailedError(kind, msg)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for trials; remove it and those of killed calls.

    Raises TrialFailedError without room, StateUnusableError without a place.
    """
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError as problem:
        msg = f"{problem.strerror}. Set TMPDIR to a folder that may be written."
        raise StateUnusableError(msg) from problem
    require_room(temporary)
    _remove_abandoned(Path(temporary))
    folder = Path(temporary, f"{PREFIX}{secrets.token_hex(6)}")
    try:
        folder.mkdir(mode=0o700)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # a file system without locks
                stack.enter_context(locked(folder))
            yield folder
    finally:
        remove_tree(str(folder))


def _remove_abandoned(temporary: Path) -> None:
    """Remove folders of this user's dead calls."""
    with contextlib.suppress(OSError):
        for folder in temporary.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # no folder, or held
                status = folder.lstat()
                mine = status.st_uid == os.geteuid()
                if mine and status.st_mtime < time.time() - YOUNG_S:
                    with locked(folder):
                        remove_tree(str(folder))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` during the context. Raises OSError if another process does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """Event that SIGINT and SIGTERM set; a second signal is final."""
    off = threading.Event()

    def stop(*_: object) -> None:
        if off.is_set():
            raise KeyboardInterrupt
        off.set()

    before = {
        number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield off
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
