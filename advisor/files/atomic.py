"""Whole files in one step, and two files that change places in one step."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAFT = ".gpu-advisor-draft"
"""Suffix of a file that is not whole yet; one whose lock is free has no writer any more."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
"""Number of the system call, where the C library has no function for it."""
_NOT_OFFERED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}


def place(path: Path, content: bytes, mode: int) -> None:
    """Make, or replace, the file at `path`: it is there whole, or as it was. Raises OSError.

    `path` is taken as it is: give a real path to write through a symbolic link.
    """
    while True:
        with draft(path) as (name, handle):
            _fill(handle, content, mode)
            try:
                name.replace(path)
            except FileNotFoundError:
                if not path.parent.is_dir():
                    raise
                continue  # another call took it for a leftover, in the moment before it was locked
        sync_folder(path.parent)
        return


def create(path: Path, content: bytes, like: os.stat_result) -> None:
    """Make a new file with the mode, and where the system allows the owner, of `like`.

    Raises OSError, FileExistsError too; then nothing is left.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            os.fchown(handle, like.st_uid, like.st_gid)
        _fill(handle, content, stat.S_IMODE(like.st_mode))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def append(path: Path, content: bytes) -> None:
    """Add to a regular file of the job that is there or is made; all of it or none.

    No link is followed, and nothing waits for a reader. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        try:
            _write(handle, content)
        except OSError:
            os.ftruncate(handle, facts.st_size)
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def draft(path: Path) -> Iterator[tuple[Path, int]]:
    """A new locked file beside `path`, open for writing; gone afterwards if it is still there."""
    name = path.with_name(f".{_short(path.name)}.{secrets.token_hex(6)}{DRAFT}")
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield name, handle
    finally:
        os.close(handle)
        name.unlink(missing_ok=True)


def remove_drafts(path: Path) -> None:
    """Remove drafts of `path` whose writers were killed; one that cannot be removed stays."""
    start = f".{_short(path.name)}."
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(start) and entry.name.endswith(DRAFT):
                _remove_dead(Path(entry.path))


def exchange(one: Path, other: Path) -> bool:
    """Let two files change places in one step; False where the system does not offer that.

    Raises OSError.
    """
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    where = (_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(*where)
    elif platform.system() == "Linux" and platform.machine() in _RENAMEAT2:
        failed = library.syscall(_RENAMEAT2[platform.machine()], *where)
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _NOT_OFFERED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def sync_folder(folder: Path) -> None:
    """Make what was renamed in `folder` outlive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _fill(handle: int, content: bytes, mode: int) -> None:
    _write(handle, content)
    os.fchmod(handle, mode)
    os.fsync(handle)


def _write(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _remove_dead(leftover: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()
        finally:
            os.close(handle)


def _short(name: str) -> str:
    """`name`, short enough that a few letters more still make a name."""
    return os.fsdecode(os.fsencode(name)[:200])
