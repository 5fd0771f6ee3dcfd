"""Bytes from the disk: never blocks, never reads without end."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from advisor.errors import ConfigMissingError, ConfigUnreadableError
from advisor.files.reading import KINDS

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 2 * 1024 * 1024
"""Largest config that is read; the largest real ones seen are below 0.5 MiB."""


def read_bytes(path: Path) -> bytes:
    """The file's bytes. Raises ConfigMissingError or ConfigUnreadableError; never blocks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as problem:
        msg = f"{path} is not there. Check the name, or call from the folder it is in."
        raise ConfigMissingError(msg) from problem
    except (OSError, ValueError) as problem:
        raise ConfigUnreadableError(why_not_opened(path, problem)) from problem
    try:
        return _content(path, handle)
    finally:
        os.close(handle)


def _content(path: Path, handle: int) -> bytes:
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        kind = KINDS.get(stat.S_IFMT(facts.st_mode), "not a regular file")
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


def why_not_opened(path: Path, problem: Exception) -> str:
    """A sentence about `problem`, which kept `path` from being opened."""
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
