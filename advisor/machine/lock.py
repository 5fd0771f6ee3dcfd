"""Lock for one measurement at a time per GPU."""

import contextlib
import fcntl
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from advisor import masking
from advisor.errors import StateBusyError, StateUnusableError


def runtime_dir() -> Path:
    """Folder of this user's locks: TMPDIR may differ between a runner's jobs."""
    own = os.environ.get("GPU_ADVISOR_RUNTIME_DIR")
    return Path(own or f"/tmp/gpu-advisor-{os.getuid()}")  # noqa: S108 (see _own_folder)


@contextlib.contextmanager
def gpu_lock(uuid: str | None) -> Iterator[None]:
    """Hold the lock of a GPU, or the host. Raises StateBusyError."""
    name = re.sub(r"[^A-Za-z0-9-]", "_", uuid or "host")
    handle = _opened(runtime_dir() / f"{name}.lock")
    try:
        _take(handle, f"GPU {uuid}" if uuid else "this host")
        yield
    finally:
        os.close(handle)


def _opened(place: Path) -> int:
    """Open the lock file, which is never removed."""
    try:
        _own_folder(place.parent)
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        msg = (
            f"No lock can be kept in {place.parent}: {problem.strerror}. "
            "Set GPU_ADVISOR_RUNTIME_DIR to a folder of your own."
        )
        raise StateUnusableError(msg) from problem


def _take(handle: int, what: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 4096, 0).decode(errors="replace")
        msg = (
            f"Another gpu-advisor measures on {what}: {holder or 'a process that just began'}. "
            "Two at once would spoil each other's figures; "
            "wait until it ends, or stop it, and call again."
        )
        raise StateBusyError(msg) from None
    command = masking.mask_text(shlex.join(sys.orig_argv))[:1000]
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}, `{command}`".encode(errors="replace"), 0)


def holders() -> tuple[str, ...]:
    """Calls that measure on this machine."""
    found = []
    for place in sorted(runtime_dir().glob("*.lock")):
        with contextlib.suppress(OSError):
            holder = place.read_text(errors="replace")
            known = re.match(r"process (\d+), ", holder)
            if known and Path(f"/proc/{known[1]}").exists():
                found.append(holder)
    return tuple(found)


def _own_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        msg = (
            f"{folder} belongs to user {found.st_uid} or is no folder, so locks kept there cannot "
            "be trusted. Remove it and call again."
        )
        raise StateBusyError(msg)
