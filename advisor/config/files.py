"""Bytes of a config from the disk."""

from __future__ import annotations

import errno
from pathlib import Path

from advisor import files
from advisor.errors import ConfigMissingError, ConfigUnreadableError

MAX_BYTES = 2 * 1024 * 1024
"""Largest config; the largest real ones seen are below 0.5 MiB."""


def read_bytes(path: Path) -> bytes:
    """Read a config. Raises ConfigMissingError or ConfigUnreadableError; never blocks."""
    try:
        return files.read_whole(path, MAX_BYTES)
    except FileNotFoundError as problem:
        msg = f"{path} is not there. Check the name, or call from the folder it is in."
        raise ConfigMissingError(msg) from problem
    except (OSError, ValueError) as problem:
        raise ConfigUnreadableError(why_not_opened(path, problem)) from problem


def why_not_opened(path: Path, problem: Exception) -> str:
    """Sentence about `problem`, which kept `path` from being read."""
    reason = getattr(problem, "strerror", None) or str(problem)
    if getattr(problem, "errno", None) == errno.ENXIO:
        reason = "is a socket"
    return f"{path} cannot be read: {reason}. Name the config file itself."
