"""Sockets and pipes on which others listen: over an overlay none could be reached."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from advisor.sandbox.places import SOCKET_TREES, SYSTEM_TREES

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = 100
"""Of each tree, looked into for what the kernel's list does not name."""
DEPTH = 2


def reachable() -> Iterator[str]:
    """Those that are in use here, wherever they lie; then what else lies in the usual trees.

    That is pipes, and sockets that a container was given from outside.
    """
    seen = set(_in_use())
    yield from seen
    for tree in SOCKET_TREES:
        yield from (path for path in _lying_in(tree) if path not in seen)


def _in_use() -> Iterator[str]:
    """Sockets with a name in the file tree, of this network namespace."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            names = {line.rstrip("\n").partition(" /")[2] for line in file}
    except OSError:
        return
    for name in names - {""}:
        path = f"/{name}"
        if not path.startswith(SYSTEM_TREES):
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    yield path
            except OSError:
                continue


def _lying_in(tree: str) -> Iterator[str]:
    """Sockets and pipes below `tree`, which may be a link to another of the trees."""
    if os.path.realpath(tree) != tree:
        return
    folders = [(tree, 0)]
    looked = 0
    while folders and looked < FOLDERS:
        folder, depth = folders.pop(0)
        looked += 1
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEPTH:
                            folders.append((entry.path, depth + 1))
                    elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                        yield entry.path
        except OSError:
            continue
