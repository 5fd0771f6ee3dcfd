"""Atomic swap of a config's bytes; other programs' edits survive.

The new bytes are written beside the config under a name that tells both what is expected to come
out and what goes in. Then the two files change places, and what came out is compared with what
was expected: if somebody saved the config meanwhile, their file is put back. A call that is
killed at any of these moments leaves a file whose name and content tell the next call what to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.config.files import read_bytes, why_not_opened
from advisor.errors import (
    AdvisorError,
    ConfigMissingError,
    ConfigReadOnlyError,
    ConfigUnreadableError,
    EditRefusedError,
)
from advisor.files import atomic

if TYPE_CHECKING:
    from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_OFFERED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}

MAX_PUT_BACK = 20
"""Attempts to put back a newer save."""


def write_atomic(path: Path, content: bytes, expected: bytes) -> None:
    """Replace the file's bytes in one step, if it still holds `expected`.

    Writes through symbolic links, and keeps mode and extended attributes, and the owner where the
    system allows. Raises EditRefusedError when the file was changed meanwhile, which is kept, and
    ConfigReadOnlyError when it, or its folder, may not be written.
    """
    target = _real(path)
    changed = f"{path} was changed by someone else since it was read, so nothing was written."
    if read_bytes(target) != expected:
        raise EditRefusedError(changed)
    facts = target.stat()
    if not facts.st_mode & 0o222 or not os.access(target, os.W_OK):
        msg = f"{path} is read-only, so nothing was written. Try chmod u+w."
        raise ConfigReadOnlyError(msg)
    swap = _Swap.of(target, expected, content)
    try:
        _tidy(swap)
        _create(swap.draft, content, facts)
        try:
            _copy_attributes(target, swap.draft)
            _make_newer(swap.draft, facts)
            swap.draft.replace(swap.ready)
            placed = _put_in_place(swap)
        finally:
            _tidy(swap)
            atomic.sync_folder(target.parent)
    except OSError as problem:
        msg = f"{path} could not be written: {problem.strerror}. It was left as it was."
        raise ConfigReadOnlyError(msg) from problem
    if not placed:
        raise EditRefusedError(changed)


def recover(path: Path) -> list[str]:
    """Finish or undo a killed call's swap; returns notes.

    To be called while no other call works on the same config. A file that somebody saved in the
    very moment of the kill is put back.
    """
    try:
        target = _real(path)
    except AdvisorError:
        return []
    notes: list[str] = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(target.parent), key=lambda entry: entry.name):
            swap = _Swap.named(target, entry.name)
            if swap is not None and entry.is_file(follow_symlinks=False):
                notes += _tidy(swap)
    return notes


@dataclass(frozen=True, slots=True)
class _Swap:
    """One replacement with its file names."""

    target: Path
    came_out: str
    """Digest of the bytes that are to come out."""
    went_in: str

    @classmethod
    def of(cls, target: Path, expected: bytes, content: bytes) -> _Swap:
        return cls(target, _digest(expected), _digest(content))

    @classmethod
    def named(cls, target: Path, name: str) -> _Swap | None:
        """Return the replacement that a file name belongs to."""
        start = re.escape(_start(target))
        match = re.fullmatch(start + r"([0-9a-f]{12})-([0-9a-f]{12})\.(draft|swap)", name)
        return cls(target, match[1], match[2]) if match else None

    @property
    def draft(self) -> Path:
        """The new bytes, perhaps not whole yet."""
        return self._file("draft")

    @property
    def ready(self) -> Path:
        """Path of the new bytes, later of the old."""
        return self._file("swap")

    def _file(self, suffix: str) -> Path:
        name = f"{_start(self.target)}{self.came_out}-{self.went_in}.{suffix}"
        return self.target.with_name(name)


def _put_in_place(swap: _Swap) -> bool:
    """Return True if new bytes replaced the expected ones."""
    if not exchange(swap.ready, swap.target):
        # Not offered by this file system: a look and a rename, as close together as can be.
        if _digest(swap.target.read_bytes()) != swap.came_out:
            return False
        swap.ready.replace(swap.target)
        return True
    if _came_out(swap.ready, swap.came_out):
        return True
    for _ in range(MAX_PUT_BACK):  # what came out is newer than what we know: back with it
        exchange(swap.ready, swap.target)
        if _came_out(swap.ready, swap.went_in):
            return False
    return False


def _came_out(path: Path, digest: str) -> bool:
    """Return True for this digest without a writer."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:  # an editor has it open and will write there
            return False
        except OSError:
            pass  # the file system has no leases, or the file is another user's
        content = b"".join(iter(lambda: os.read(handle, 1 << 20), b""))
        return _digest(content) == digest
    finally:
        os.close(handle)


def _tidy(swap: _Swap) -> list[str]:
    """Remove swap files and restore a concurrent save."""
    swap.draft.unlink(missing_ok=True)
    held = _digest_of(swap.ready)
    if held in {None, swap.came_out, swap.went_in}:
        swap.ready.unlink(missing_ok=True)
        return []
    there = _digest_of(swap.target)
    if there is None:
        swap.ready.replace(swap.target)
    elif there != swap.went_in or not exchange(swap.ready, swap.target):
        rescued = swap.target.with_name(f"{swap.target.name}.rescued-{held}")
        swap.ready.replace(rescued)
        return [f"{rescued} holds what another program saved while {swap.target} was replaced"]
    swap.ready.unlink(missing_ok=True)
    note = (
        f"{swap.target} was saved by another program while an earlier call replaced it; "
        "that program's version was put back"
    )
    return [note]


def _real(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except FileNotFoundError as problem:
        msg = f"{path} is not there any more, so nothing was written. Put it back and call again."
        raise ConfigMissingError(msg) from problem
    except (OSError, RuntimeError, ValueError) as problem:
        raise ConfigUnreadableError(why_not_opened(path, problem)) from problem


def _copy_attributes(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not Linux
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _make_newer(draft: Path, than: os.stat_result) -> None:
    """Make the file newer by at least one second.

    Python trusts bytecode of a file with equal size and second.
    """
    if int(draft.stat().st_mtime) <= int(than.st_mtime):
        newer = int(than.st_mtime) + 1
        os.utime(draft, (newer, newer))


def _start(target: Path) -> str:
    """Prefix of this target's files; short for any name."""
    return f".gpu-advisor-{_digest(os.fsencode(target.name))}-"


def _digest_of(path: Path) -> str | None:
    try:
        return _digest(path.read_bytes())
    except FileNotFoundError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _create(path: Path, content: bytes, like: os.stat_result) -> None:
    """Create a file with `like`'s mode and owner.

    Raises OSError, FileExistsError too; then nothing is left.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            os.fchown(handle, like.st_uid, like.st_gid)
        atomic.fill(handle, content, stat.S_IMODE(like.st_mode))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files atomically; False if unsupported.

    Raises OSError.
    """
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    where = (_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if not hasattr(library, "renameat2"):
        return False
    if not library.renameat2(*where):
        return True
    code = ctypes.get_errno()
    if code in _NOT_OFFERED:
        return False
    raise OSError(code, os.strerror(code), str(other))
