"""What a program would have changed, read from the upper layers of overlays."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

from advisor.sandbox import results
from advisor.sandbox.places import SYSTEM_TREES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LISTED_LIMIT = 200
"""Files of each kind that are told by name."""
OPAQUE = "user.overlay.opaque"
COMPILED = "__pycache__"
"""Python's own; no one misses it."""
LOGS = (".log", ".out", ".err", ".lock", ".pid", ".tmp")
LOG_PARTS = ("events.out.tfevents", ".wandb")
"""Endings and parts of names of what tells of the work and is none."""
COUNTED_LIMIT = 100_000
LOOKED_INTO = 16
"""Files of items."""


def changes(kept: int, layers: Sequence[tuple[str, str]], host: int) -> dict[str, list[Any]]:
    """Absolute paths that were created, changed (content or mode) and removed, sorted; when files
    that are no logs were last written, in seconds since the epoch; and what new files of items
    hold (`results`).

    `kept` is the descriptor of the folder of all layers, each of which is (the path it lies over,
    its folder). `host` is that of the host's root, where the real files are.
    """
    kinds = ("created", "changed", "removed", "written_at", "results")
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for path, upper in layers:
        place = path.rstrip("/")
        for kind, name, status in _differences(kept, upper, host, place):
            if len(found[kind]) < LISTED_LIMIT:
                found[kind].append(name)
            if kind != "removed" and _is_product(name, status):
                found["written_at"].append(round(status.st_mtime, 3))
                if len(found["results"]) < LOOKED_INTO and _is_new(kind, name, status, host):
                    held = _look_into(kept, f"{upper}{name.removeprefix(place)}")
                    found["results"] += [{"path": name, **held}] if held else []
    found["written_at"] = sorted(found["written_at"])[:COUNTED_LIMIT]
    return found | {kind: sorted(set(found[kind])) for kind in ("created", "changed", "removed")}


def written(folder: str) -> dict[str, list[Any]]:
    """`written_at` and `results` of a plain folder in which everything is of this run."""
    found: dict[str, list[Any]] = {"written_at": [], "results": []}
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            try:
                status = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                continue  # something of the program's goes on tidying up
            if not _is_product(path, status) or len(found["written_at"]) == COUNTED_LIMIT:
                continue
            found["written_at"].append(round(status.st_mtime, 3))
            if len(found["results"]) < LOOKED_INTO and (held := _look_into(None, path)):
                found["results"].append({"path": path, **held})
    return found


def _is_product(path: str, status: os.stat_result) -> bool:
    name = path.rpartition("/")[2]
    told = name.endswith(LOGS) or any(part in name for part in LOG_PARTS)
    return stat.S_ISREG(status.st_mode) and not told


def _is_new(kind: str, path: str, status: os.stat_result, host: int) -> bool:
    """Whether all of it is of this run: what may have been added to also holds earlier items."""
    old = _real(path, host) if kind == "changed" else None
    return old is None or status.st_size < old.st_size


def _look_into(kept: int | None, path: str) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=kept)
    except OSError:
        return None
    try:
        return results.look_into(descriptor, path)
    finally:
        os.close(descriptor)


def _differences(
    kept: int, upper: str, host: int, place: str
) -> Iterator[tuple[str, str, os.stat_result]]:
    folders = [""]
    while folders:
        inside = folders.pop()
        try:
            here = os.open(f"{upper}{inside}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=kept)
        except OSError:
            continue
        try:
            for name in sorted(os.listdir(here)):
                if name == COMPILED:
                    continue
                path = f"{place}{inside}/{name}"
                new = os.stat(name, dir_fd=here, follow_symlinks=False)
                old = _real(path, host)
                if stat.S_ISCHR(new.st_mode) and new.st_rdev == 0:
                    if old is not None:
                        yield "removed", path, new
                elif stat.S_ISDIR(new.st_mode):
                    folders.append(f"{inside}/{name}")
                    if old is None or not stat.S_ISDIR(old.st_mode):
                        if _is_empty(here, name):
                            yield "created", path + "/", new
                    elif _is_opaque(here, name):
                        yield "removed", path + "/", new
                    elif stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
                        yield "changed", path + "/", new
                elif old is None:
                    yield "created", path, new
                elif _mark(old) != _mark(new) or not _same_link(here, name, path, host):
                    yield "changed", path, new
        finally:
            os.close(here)


def _real(path: str, host: int) -> os.stat_result | None:
    if path.startswith(SYSTEM_TREES):
        return None
    try:
        return os.stat(path.lstrip("/"), dir_fd=host, follow_symlinks=False)
    except OSError:
        return None


def _mark(status: os.stat_result) -> tuple[int, ...]:
    times = () if stat.S_ISLNK(status.st_mode) else (status.st_mtime_ns,)
    return (status.st_mode, status.st_size, status.st_uid, status.st_gid, *times)


def _same_link(here: int, name: str, path: str, host: int) -> bool:
    try:
        new = os.readlink(name, dir_fd=here)
    except OSError:
        return True
    return os.readlink(path.lstrip("/"), dir_fd=host) == new


def _is_empty(here: int, name: str) -> bool:
    """Whether there is nothing below that could be told of in its place."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
    try:
        return not os.listdir(folder)
    finally:
        os.close(folder)


def _is_opaque(here: int, name: str) -> bool:
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError as problem:
        if problem.errno not in {errno.ENODATA, errno.ENOTSUP}:
            raise
        return False
    finally:
        os.close(folder)
