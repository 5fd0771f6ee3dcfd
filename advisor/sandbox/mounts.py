"""Plan of the mounts of an overlay.

The kernel lays no overlay over a folder holding a mount that a user may not unmount.
Such a folder is split: its content is covered one by one.
"""

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from advisor.sandbox.kernel import keeps_all_users
from advisor.sandbox.path_policy import (
    PSEUDO,
    SHARED_MEMORY,
    SYSTEM_TREES,
    is_within,
    parents,
)

FOLDERS_LIMIT = 1000
"""A folder of more is no place for folders of several owners.

Judgement: each folder in it is mounted by itself. More delays every trial, fewer refuses a /home
with many users."""

How = Literal["overlay", "split", "sealed", "passes", "memory"]
"""overlay: writes go to a layer. split: the same over a copy of the folder's own files, as
others are mounted in it. sealed: shown read-only. passes: shown as is. memory: private."""


class Mount(NamedTuple):
    path: str
    fstype: str
    read_only: bool


class FileTree:
    """Real file tree; read it before entering namespaces."""

    def __init__(self) -> None:
        self._owner = os.geteuid(), os.getegid()
        self.owns_all = keeps_all_users()
        """True for a root for whom all users exist here: nothing is foreign."""

    def folders(self, path: str) -> list[str]:
        """Folders in a folder, one more than FOLDERS_LIMIT at most."""
        try:
            with os.scandir(path) as entries:
                paths = (
                    entry.path for entry in entries if entry.is_dir(follow_symlinks=False)
                )
                return list(itertools.islice(paths, FOLDERS_LIMIT + 1))
        except OSError:
            return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path) and not os.path.islink(path)

    def may_write(self, path: str) -> bool:
        return os.access(path, os.W_OK)

    def is_foreign(self, path: str) -> bool:
        """Return True for a folder of others: no overlay copies it up."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        return (status.st_uid, status.st_gid) != self._owner


def read_mounts(text: str) -> list[Mount]:
    """Read the topmost mounts from /proc/self/mountinfo."""
    seen: dict[str, Mount] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, kind = before.split(), after.split()
        path = _unescaped(words[4])
        seen = {point: mount for point, mount in seen.items() if not is_within(point, path)}
        read_only = "ro" in words[5].split(",") or "ro" in kind[-1].split(",")
        seen[path] = Mount(path, kind[0], read_only)
    return sorted(seen.values())


def other_places(paths: Iterable[str], text: str) -> list[str]:
    """Return where else files below `paths` are shown, by /proc/self/mountinfo.

    A file system, or a folder of it, may be mounted at several places: a home below /mnt, the
    folders of a container's job. A place counts if it still shows the same file.
    """
    mounts = []
    for line in text.splitlines():
        words = line.split()
        mounts.append((words[2], *map(_unescaped, words[3:5])))
    found: list[str] = []
    for path in paths:
        around = [mount for mount in mounts if is_within(path, mount[2])]
        if not around:
            continue
        device, top, point = max(reversed(around), key=lambda mount: len(mount[2]))
        inner = _moved(path, point, top)
        for other, shown, place in mounts:
            if other != device:
                continue
            if is_within(inner, shown):
                pair = path, _moved(inner, shown, place)
            elif is_within(shown, inner):
                pair = _moved(shown, top, point), place
            else:
                continue
            if not is_within(pair[1], path) and _is_same(*pair):
                found.append(pair[1])
    return sorted({*found})


def _moved(path: str, source: str, target: str) -> str:
    """Return `path`, which lies below `source`, at its place below `target`."""
    inside = path[len(source.rstrip("/")) :]
    return f"{target.rstrip('/')}{inside}" or "/"


def _is_same(one: str, two: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(two))
    except OSError:
        return False


def plan(
    mounts: list[Mount], places: Sequence[str], tree: FileTree, *, private_memory: bool
) -> dict[str, How]:
    """Plan the mounts by path, parents before children. Raises OSError.

    `places` are where the program surely writes: working directory, user's home.
    """
    points = {mount.path for mount in mounts}
    steps: dict[str, How] = {}
    for mount in mounts:
        if any(is_within(mount.path, system_tree) for system_tree in SYSTEM_TREES):
            if mount.path in SYSTEM_TREES:
                steps[mount.path] = "passes"
        elif mount.read_only and mount.path != "/":
            steps[mount.path] = "passes"
        elif mount.fstype in PSEUDO or not tree.is_folder(mount.path):
            steps[mount.path] = "sealed"  # the kernel's settings may have a second place
        else:
            steps |= _covered(mount.path, points, places, tree)
    if private_memory and tree.is_folder(SHARED_MEMORY):
        steps[SHARED_MEMORY] = "memory"
    return dict(sorted(steps.items()))


def _covered(
    folder: str, points: Collection[str], places: Sequence[str], tree: FileTree
) -> dict[str, How]:
    if folder in SYSTEM_TREES:
        return {folder: "passes"}
    if not any(point != folder and is_within(point, folder) for point in points):
        return dict.fromkeys((folder, *_apart(folder, places, tree)), "overlay")
    inside = tree.folders(folder)
    if len(inside) > FOLDERS_LIMIT:
        msg = f"{folder}, in which others are mounted, has over {FOLDERS_LIMIT} folders"
        raise OSError(msg)
    steps: dict[str, How] = {folder: "split" if tree.may_write(folder) else "sealed"}
    for each in inside:
        if each not in points:
            steps |= _covered(each, points, places, tree)
    return steps


def _apart(folder: str, places: Iterable[str], tree: FileTree) -> Iterator[str]:
    """Yield writable folders that need their own overlay.

    One would copy up a folder of others: /var/tmp, or /data above one's own.
    """
    if tree.owns_all:
        return
    between = {
        path
        for place in places
        for path in (place, *parents(place))
        if path != folder and is_within(path, folder)
    }
    for path in {*tree.folders(folder), *between}:
        if tree.is_foreign(path) and tree.may_write(path):
            yield path
    for parent in between:
        if tree.is_foreign(parent) and not tree.may_write(parent):
            for path in tree.folders(parent):
                if not tree.is_foreign(path) or tree.may_write(path):
                    yield path


def _unescaped(word: str) -> str:
    octal = re.compile(rb"\\([0-7]{3})")
    return os.fsdecode(
        octal.sub(lambda match: bytes([int(match[1], 8)]), os.fsencode(word))
    )
