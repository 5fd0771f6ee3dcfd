"""Lock for one measurement at a time per GPU, among all users of the machine.

The files lie in a folder that every user may write to and where nobody can remove another's file:
/run/lock, else /tmp. Anybody can plant something there under the name of a lock. So a file is
opened without following links, is believed only if it is a plain file with one name, and is never
opened with O_CREAT once it exists: the kernel refuses that for files of others in such folders
(fs.protected_regular). What another user planted costs the exclusion of that user and of nobody
else: a lock that cannot be opened lies in a folder of this user's own instead. Another user can
still hold a lock for ever, as a call that measures for ever would; the refusal names who.
"""

import contextlib
import errno
import fcntl
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from advisor import masking
from advisor.errors import StateBusyError, StateUnusableError

SHARED = ("/run/lock", "/tmp")  # noqa: S108  see above
"""Folders that all users of a machine see, the better first: a service may have its own /tmp."""
TRIES = 5
"""How often a file is tried that its maker has not yet opened to all.

Judgement: its maker opens it at once. Fewer fail beside a maker that lost its CPU, more delay the
error where it stays closed."""
PAUSE_S = 0.02
"""Seconds between two tries.

Judgement: shorter ends all tries before a busy host runs the maker again, longer delays each error
by as much."""
HOLDER_BYTES = 4096
"""Most bytes that are read of who holds a lock, as any user may write it.

Judgement: fewer cut a holder's long command, more let a stranger's file fill an error message."""
MARK = b"process "
"""Beginning of what a holder writes into the file: nothing else is written over."""


def runtime_dir() -> Path:
    """Folder of this user's own locks: TMPDIR may differ between a runner's jobs."""
    named = os.environ.get("GPU_ADVISOR_RUNTIME_DIR")
    return Path(named or f"/tmp/gpu-advisor-{os.getuid()}")  # noqa: S108 (see _own_folder)


@contextlib.contextmanager
def gpu_lock(uuid: str | None) -> Iterator[None]:
    """Hold the lock of a GPU, or of the host without one. Raises StateBusyError.

    The kernel releases it with the process, however that ends: no lock outlives its holder.
    """
    name = re.sub(r"[^A-Za-z0-9-]", "_", uuid or "host")
    handle = _opened(f"{name}.lock")
    try:
        _take(handle, f"GPU {uuid}" if uuid else "this host")
        yield
    finally:
        os.close(handle)


def shared_folders() -> list[Path]:
    """Folders in which all users' locks lie; none where a folder of its own was asked for."""
    if os.environ.get("GPU_ADVISOR_RUNTIME_DIR"):
        return []
    return [Path(folder) for folder in SHARED if _for_all(Path(folder))]


def _for_all(folder: Path) -> bool:
    """True if everybody can make files there, and remove only their own."""
    with contextlib.suppress(OSError):
        mode = folder.stat().st_mode
        return (
            stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX) and bool(mode & stat.S_IWOTH)
        )
    return False


def _opened(name: str) -> int:
    """Open the lock file, which is never removed."""
    for folder in shared_folders():
        with contextlib.suppress(OSError):
            return _open_shared(folder / f"gpu-advisor-{name}")
    place = runtime_dir() / name
    try:
        _own_folder(place.parent)
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        msg = (
            f"No lock can be kept in {place.parent}: {problem.strerror}. "
            "Set GPU_ADVISOR_RUNTIME_DIR to a folder of your own."
        )
        raise StateUnusableError(msg) from problem


def _open_shared(place: Path) -> int:
    """Open or make a lock that all users may take. Raises OSError for anything else there."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for attempt in range(TRIES):
        with contextlib.suppress(FileExistsError):
            handle = os.open(place, flags | os.O_CREAT | os.O_EXCL, 0o600)
            os.fchmod(handle, 0o666)  # whatever the umask
            return handle
        try:
            handle = os.open(place, flags)
        except PermissionError:
            if attempt == TRIES - 1:
                raise
            time.sleep(PAUSE_S)
            continue
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return handle
        os.close(handle)
        break
    raise OSError(errno.EINVAL, "is no lock", str(place))


def _take(handle: int, what: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _shown(os.pread(handle, HOLDER_BYTES, 0))
        msg = (
            f"Another gpu-advisor measures on {what}: {holder or 'a process that just began'}. "
            "Two at once would spoil each other's figures; "
            "wait until it ends (--wait 30m), or stop it, and call again."
        )
        raise StateBusyError(msg) from None
    if os.pread(handle, len(MARK), 0) not in {b"", MARK}:
        return  # it is taken all the same, and what is in it is not ours
    command = masking.mask_text(shlex.join(sys.orig_argv))[:1000]
    told = MARK + f"{os.getpid()} of user {os.getuid()}, `{command}`".encode(
        errors="replace"
    )
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(handle, 0)
        os.pwrite(handle, told, 0)


def _shown(content: bytes) -> str:
    """A holder's words, which any user may have written, as one harmless line."""
    text = content.decode(errors="replace")
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def holders() -> tuple[str, ...]:
    """What the calls that measure on this machine said of themselves, as told to the user.

    Only of processes that live: a holder's words stay in the file when it is gone.
    """
    places = list(runtime_dir().glob("*.lock"))
    for folder in shared_folders():
        places += folder.glob("gpu-advisor-*.lock")
    pids = []
    for place in sorted(places):
        with contextlib.suppress(OSError):
            handle = os.open(
                place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
            with os.fdopen(handle, "rb") as file:
                holder = _shown(file.read(HOLDER_BYTES))
            match = re.match(r"process (\d{1,9}) of ", holder)
            if match and Path(f"/proc/{match[1]}").exists():
                pids.append(holder)
    return tuple(pids)


def _own_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        msg = (
            f"{folder} belongs to user {status.st_uid} or is no folder, so locks kept there cannot "
            "be trusted. Remove it and call again."
        )
        raise StateBusyError(msg)
