"""A user and a mount namespace of this process's own, in which every number means what it meant."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from advisor.sandbox import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator


SETGID, SETUID, SETFCAP = 1 << 6, 1 << 7, 1 << 31
"""Capabilities that granting all numbers takes."""


def own() -> None:
    """Move into them. Raises OSError.

    Root keeps all users and groups that there are, so that it may do with their files what it
    could before. Whoever has no right to that keeps their own user and group alone.
    """
    user, group = os.geteuid(), os.getegid()
    if keeps_all():
        with _mapper():
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def keeps_all() -> bool:
    """Whether this process would take all users and groups along, of which there are some."""
    needed = SETGID | SETUID | SETFCAP
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        effective = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    several = sum(count for _, count in _ranges("uid")) > 1
    return os.geteuid() == 0 and several and int(effective, 16) & needed == needed


def _ranges(kind: str) -> list[tuple[int, int]]:
    """First and count of each range of numbers that exist here."""
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        lines = [line.split() for line in file]
    return [(int(first), int(count)) for first, _, count in lines]


@contextlib.contextmanager
def _mapper() -> Iterator[None]:
    """After the move inside, all numbers that exist outside exist in there, as themselves.

    Only a process that stayed outside may grant them. Raises OSError where it may not.
    """
    mine = os.getpid()
    maps = {
        kind: "".join(f"{first} {first} {count}\n" for first, count in _ranges(kind))
        for kind in ("gid", "uid")
    }
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        refused = 0
        try:
            if os.read(read, 1):
                for kind, text in maps.items():
                    _write(f"/proc/{mine}/{kind}_map", text)
        except OSError as problem:
            refused = problem.errno or errno.EPERM
        os._exit(refused)
    os.close(read)
    try:
        yield
        os.write(write, b"m")
    finally:
        os.close(write)
        refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if refused:
        raise OSError(refused, os.strerror(refused), "/proc/self/uid_map")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
