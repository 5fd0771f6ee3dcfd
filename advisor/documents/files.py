"""Bytes from the disk and back: never blocks, never writes half a file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

from advisor.errors import (
    ConfigMissingError,
    ConfigReadOnlyError,
    ConfigUnreadableError,
    EditRefusedError,
)

MAX_BYTES = 2 * 1024 * 1024
"""Largest config that is read; the largest real ones seen are below 0.5 MiB."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bytes(path: Path) -> bytes:
    """The file's bytes. Raises ConfigMissingError or ConfigUnreadableError; never blocks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as problem:
        msg = f"{path} is not there. Check the name, or call from the folder it is in."
        raise ConfigMissingError(msg) from problem
    except (OSError, ValueError) as problem:
        raise ConfigUnreadableError(_why_not_opened(path, problem)) from problem
    try:
        return _content(path, handle)
    finally:
        os.close(handle)


def _content(path: Path, handle: int) -> bytes:
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "not a regular file")
        msg = f"{path} is {kind}, not a config file. Name the file itself."
        raise ConfigUnreadableError(msg)
    if not facts.st_mode & 0o444:
        msg = f"{path} may not be read: no one has read permission. Try chmod u+r."
        raise ConfigUnreadableError(msg)
    if facts.st_size > MAX_BYTES:
        raise ConfigUnreadableError(_too_large(path, facts.st_size))
    content = b""
    while piece := os.read(handle, MAX_BYTES + 1):
        content += piece
        if len(content) > MAX_BYTES:  # it grew, or gives no size, as files of /proc do
            raise ConfigUnreadableError(_too_large(path, len(content)))
    return content


def write_atomic(path: Path, content: bytes, expected: bytes) -> None:
    """Replace the file's bytes in one step, if it still holds `expected`.

    Writes through symlinks and keeps mode, and owner where the system allows. Raises
    EditRefusedError when the file changed meanwhile and ConfigReadOnlyError when it, or its
    folder, may not be written.
    """
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError as problem:
        msg = f"{path} is not there any more, so nothing was written."
        raise ConfigMissingError(msg) from problem
    except (OSError, RuntimeError) as problem:
        raise ConfigUnreadableError(_why_not_opened(path, problem)) from problem
    if read_bytes(target) != expected:
        msg = f"{path} was changed by someone else since it was read, so nothing was written."
        raise EditRefusedError(msg)
    facts = target.stat()
    if not facts.st_mode & 0o222 or not os.access(target, os.W_OK):
        msg = f"{path} is read-only, so nothing was written. Try chmod u+w."
        raise ConfigReadOnlyError(msg)
    try:
        _replace(target, content, facts)
    except OSError as problem:
        msg = f"{path} could not be written: {problem.strerror}. It was left as it was."
        raise ConfigReadOnlyError(msg) from problem


def _replace(target: Path, content: bytes, facts: os.stat_result) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            with contextlib.suppress(OSError):
                os.fchown(file.fileno(), facts.st_uid, facts.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(facts.st_mode))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _why_not_opened(path: Path, problem: Exception) -> str:
    code = getattr(problem, "errno", None)
    if code == errno.ELOOP or isinstance(problem, RuntimeError):
        return f"{path} is a loop of symbolic links. Name the file itself."
    if code == errno.ENXIO:
        return f"{path} is a socket, not a config file. Name the file itself."
    if code == errno.EACCES:
        return f"{path} may not be read: permission denied. Try chmod u+r."
    return f"{path} cannot be opened: {getattr(problem, 'strerror', None) or problem}."


def _too_large(path: Path, size: int) -> str:
    return (
        f"{path} is {size / 2**20:.1f} MiB; a config of more than {MAX_BYTES // 2**20} MiB "
        "is not read. Name the config, not a data file."
    )
