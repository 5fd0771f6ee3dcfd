"""Bytes of a config: bounded reads, swaps that other programs' edits survive.

A rename would replace whatever lies there, also what an editor has saved since the config was
read. No lock helps, since editors take none. So nothing is replaced where the system can exchange
files: new bytes lie beside the config, named by what should come out and go in, and the two files
change places in one system call. If something else came out, saved meanwhile, they change places
again. Where it cannot, a look and a rename leave a moment in which a save is lost.

A call may be killed at any point of this. The file that is left beside the config tells the next
call what to do, by its name and content: remove it, or keep it as what somebody else saved.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
from pathlib import Path

from advisor import errors, files
from advisor.files import atomic

MAX_BYTES = 2 * 1024 * 1024
"""Largest config in bytes; the largest real ones seen are below 0.5 MiB.

Judgement: smaller refuses a real config, larger parses a data file that was named by mistake."""

NO_NAMES = {
    r"^https?:/": "An address is no file: download it, and name the file.",
    r"^~|\$": "The shell replaces `~` and variables only outside of single quotes.",
    r"[*?\[]": "The shell replaces a pattern only without quotes, and where a file matches it.",
}
"""Hints by a pattern of a path that is not there."""
CHECK_NAME = "Check the name, or call from the folder it is in."


def read_bytes(path: Path) -> bytes:
    """Read without blocking. Raises ConfigMissingError or ConfigUnreadableError."""
    try:
        return files.read_whole(path, MAX_BYTES)
    except FileNotFoundError as problem:
        hints = (
            hint for pattern, hint in NO_NAMES.items() if re.search(pattern, str(path))
        )
        hint = next(hints, "") or files.near(path) or CHECK_NAME
        msg = f"{path} is not there. {hint}"
        raise errors.ConfigMissingError(msg) from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        msg = f"{path} cannot be read: {reason}. Name the config file itself."
        raise errors.ConfigUnreadableError(msg) from problem


# Of renameat2(2): AT_FDCWD of `linux/fcntl.h`, and RENAME_EXCHANGE of `linux/fs.h`.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_OFFERED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}


def write_atomic(path: Path, content: bytes, expected: bytes) -> None:
    """Replace the file's bytes in one step, if it still holds `expected`.

    Where files cannot be exchanged, the look and the rename are two steps.
    Follows links; keeps mode, extended attributes, and the owner where it can. Raises
    EditRefusedError if somebody changed it, ConfigReadOnlyError if it cannot be written.
    """
    target = Path(os.path.realpath(path))  # the read reports circular links
    changed = (
        f"{path} was changed by someone else since it was read, so nothing was written."
    )
    if read_bytes(target) != expected:
        raise errors.EditRefusedError(changed)
    require_one_name(target)
    if not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK):
        msg = f"{path} is read-only, so nothing was written. Try chmod u+w."
        raise errors.ConfigReadOnlyError(msg)
    out = _digest(expected)
    file = target.with_name(f"{_start(target)}{out}-{_digest(content)}.swap")
    try:
        try:
            atomic.place(file, content, 0o600)
            _look_alike(file, target)
            placed = _put_in_place(file, target, out)
        finally:
            _tidy(file, target)
            atomic.sync_folder(target.parent)
    except OSError as problem:
        msg = f"{path} could not be written: {problem.strerror}. It was left as it was."
        raise errors.ConfigReadOnlyError(msg) from problem
    if not placed:
        raise errors.EditRefusedError(changed)


def require_one_name(target: Path) -> None:
    """Raise ConfigReadOnlyError for a file of several names, which would part.

    A replaced file is a new one: a second name (a hard link) would keep the old settings. And it
    cannot be written in place, as a killed call would leave it cut.
    """
    names = target.stat().st_nlink
    if names > 1:
        msg = (
            f"{target} has {names} names (hard links), of which only one would get the new "
            "settings. Name another file with --output, or copy it over itself first: "
            f"cp {target.name} copy && mv copy {target.name}."
        )
        raise errors.ConfigReadOnlyError(msg)


def recover(path: Path) -> list[str]:
    """Clean up after a killed swap, while no other runs; return notes.

    A file saved in the moment of the kill is kept beside the config.
    """
    target = Path(os.path.realpath(path))
    if not os.path.exists(target):  # noqa: PTH110  a Path may raise
        return []
    name = re.compile(
        rf"\.?{re.escape(_start(target))}[0-9a-f]{{12}}-[0-9a-f]{{12}}\.swap.*"
    )
    notes: list[str] = []
    with contextlib.suppress(OSError):
        entries = os.listdir(target.parent)  # noqa: PTH208  names are enough
        for file in map(target.with_name, sorted(filter(name.fullmatch, entries))):
            if file.name.endswith(atomic.DRAFT):
                file.unlink()
            else:
                notes += _tidy(file, target)
    return notes


def _put_in_place(file: Path, target: Path, out: str) -> bool:
    """True if new bytes replaced those with the digest `out`."""
    if not exchange(file, target):
        # Not offered by this file system: a look, and at once a rename.
        if _digest(target.read_bytes()) != out:
            return False
        file.replace(target)
        return True
    if _came_out(file, out):
        return True
    exchange(file, target)  # something newer came out: back with it
    return False


def _came_out(path: Path, digest: str) -> bool:
    """True if the file has this digest and nobody is about to write it.

    An editor that has it open could save a moment later into what is about to be removed.
    The kernel grants a lease for reading only on a file that no process has open for writing.
    """
    with path.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the file system has no leases, or the file is another user's
        return _digest(file.read()) == digest


def _tidy(file: Path, target: Path) -> list[str]:
    """Remove a swap file whose content is one of the two that its name tells.

    Other content was saved by another program: keep it beside the config, and return a note.
    """
    if not file.is_file():
        return []
    digest = _digest(file.read_bytes())
    if digest in file.name:  # what was to come out, or to go in
        file.unlink(missing_ok=True)
        return []
    rescued = target.with_name(f"{target.name}.rescued-{digest}")
    file.replace(rescued)
    return [f"{rescued} holds what another program saved while {target} was replaced"]


def _look_alike(file: Path, original: Path) -> None:
    """Copy owner, mode and attributes of `original`; set the present time."""
    facts = original.stat()
    with contextlib.suppress(OSError):
        os.chown(file, facts.st_uid, facts.st_gid)
    shutil.copystat(original, file)
    os.utime(file)


def _start(target: Path) -> str:
    """Prefix of this target's files: a digest, as its name may be as long as one can be."""
    return f".gpu-advisor-{_digest(os.fsencode(target.name))}-"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files atomically; False if unsupported. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    where = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if not hasattr(library, "renameat2"):
        return False
    if not library.renameat2(*where):
        return True
    code = ctypes.get_errno()
    if code in _NOT_OFFERED:
        return False
    raise OSError(code, os.strerror(code), str(other))
