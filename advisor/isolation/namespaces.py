"""A user and a mount namespace of this process's own, in which every number means what it meant."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from advisor.isolation import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator


def own() -> None:
    """Move into them. Raises OSError.

    Root keeps all users and groups that there are, so that it may do with their files what it
    could before. Whoever has no right to that keeps their own user and group alone.
    """
    user, group = os.geteuid(), os.getegid()
    with _mapper() if user == 0 else contextlib.nullcontext():
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    if not ranges("uid"):
        _write("/proc/self/uid_map", f"{user} {user} 1")
    if not ranges("gid"):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def ranges(kind: str) -> list[tuple[int, int]]:
    """First and count of each range of numbers that exist here; `kind` is uid or gid."""
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        lines = [line.split() for line in file]
    return [(int(first), int(count)) for first, _, count in lines]


@contextlib.contextmanager
def _mapper() -> Iterator[None]:
    """Once the namespaces are left inside, all numbers from outside exist in them, as themselves.

    Only a process that stayed outside may grant them; where it may not, nothing is mapped.
    """
    mine = os.getpid()
    maps = {
        kind: "".join(f"{first} {first} {count}\n" for first, count in ranges(kind))
        for kind in ("gid", "uid")
    }
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        if os.read(read, 1):
            with contextlib.suppress(OSError):
                for kind, text in maps.items():
                    _write(f"/proc/{mine}/{kind}_map", text)
        os._exit(0)
    os.close(read)
    try:
        yield
        os.write(write, b"m")
    finally:
        os.close(write)
        os.waitpid(child, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
