"""Changes of a trial, from its overlay layers.

A layer holds just what the program wrote, so its changes are known exactly and for nothing:
neither the user's files nor the time of a write have to be looked at. A file in it that is equal
to the one below was touched and not changed, as overlays copy a file once it is opened to write.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from advisor.sandbox import kernel
from advisor.sandbox.path_policy import SYSTEM_TREES

LISTED_LIMIT = 200
"""Files of each kind of change that are listed.

Judgement: fewer hides what a program changed, more swells the record of one that makes many."""
LOGS = (".log", ".out", ".err", ".lock", ".pid", ".tmp")
LOG_PARTS = ("events.out.tfevents", ".wandb")
"""Name parts of files that describe work and are none."""
COUNTED_LIMIT = 100_000
"""Times of product files that are told.

Judgement: fewer cuts the count of a long run's items, more swells the supervisor's answer."""
ITEM_SUFFIXES = (
    ".jsonl", ".ndjson", ".jsonlines", ".csv", ".tsv", ".json", ".npy", ".npz", ".png", ".jpg",
    ".jpeg", ".wav", ".tif", ".tiff", ".webp", ".exr", ".bmp", ".gif", ".flac", ".mp3",
)  # fmt: skip
"""Files of items, whose content is compared between trials."""
RESULTS_LIMIT = 16
"""Files of items that are copied out.

Judgement: fewer may leave out the one that holds the results, more costs time after each trial."""
LOOKED_AT_LIMIT = 2_000
"""Files in caches of downloads that are compared, twice a trial; each takes about 4 us.

Judgement: a cache of more files is not compared at all. So fewer leaves out ordinary ones, and more
delays each trial."""
COPIED_BYTES = 64 << 20
"""Largest file of items, in bytes, that is copied out of a layer.

Judgement: smaller leaves results uncompared, larger costs time and room after each trial."""
COPIED_AT_ONCE = 1 << 20
"""Bytes of a file that are in memory while it is copied.

Judgement: fewer takes more system calls, more only takes more memory."""


def changes(
    kept: int, layers: Sequence[tuple[str, str]], host: int, copies: str
) -> dict[str, list[Any]]:
    """Return sorted absolute paths by change, and more: see `Sandbox.changes`.

    A layer is (path below, folder). Descriptors: `kept`: folder of all; `host`: real root.
    """
    kinds = ("created", "changed", "removed", "written_at", "results")
    by_kind: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for path, upper in layers:
        place = path.rstrip("/")
        for name, old, new in _differences(kept, upper, host, place):
            gone = _is_whiteout(new)
            kind = "removed" if gone else "created" if old is None else "changed"
            if len(by_kind[kind]) < LISTED_LIMIT:
                by_kind[kind].append(name)
            if gone or not is_product(name, new):
                continue
            by_kind["written_at"].append(round(new.st_mtime, 3))
            begun = old is None or new.st_size < old.st_size  # it holds no earlier items
            if begun and holds_items(name, new) and len(by_kind["results"]) < RESULTS_LIMIT:
                copy = os.path.join(copies, f"result{len(by_kind['results'])}")
                lower = f"{upper}{name.removeprefix(place)}"
                result = {"path": name, "copy": copy, "written_at": new.st_mtime}
                by_kind["results"] += [result] if _copied(kept, lower, copy) else []
    by_kind["written_at"] = sorted(by_kind["written_at"])[:COUNTED_LIMIT]
    return by_kind | {
        kind: sorted(by_kind[kind]) for kind in ("created", "changed", "removed")
    }


def is_product(path: str, status: os.stat_result) -> bool:
    name = path.rpartition("/")[2]
    log = name.endswith(LOGS) or any(part in name for part in LOG_PARTS)
    return stat.S_ISREG(status.st_mode) and not log


def holds_items(path: str, status: os.stat_result) -> bool:
    return path.lower().endswith(ITEM_SUFFIXES) and 0 < status.st_size <= COPIED_BYTES


def _copied(kept: int, path: str, copy: str) -> bool:
    """Copy a file out of a layer; False if it cannot be read."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with (
            open(os.open(path, flags, dir_fd=kept), "rb") as source,
            open(copy, "xb") as target,
        ):
            copy_content(source, target)
    except OSError:
        return False
    return True


def copy_content(source: BinaryIO, target: BinaryIO) -> None:
    """Copy the rest of one open file to another. Raises OSError."""
    while chunk := source.read(COPIED_AT_ONCE):
        target.write(chunk)


def _differences(
    kept: int, upper: str, host: int, place: str
) -> Iterator[tuple[str, os.stat_result | None, os.stat_result]]:
    """Yield what differs in a layer from the host: path, old status if any, and new one.

    A folder alone is no difference: the layer has one above each file that was written.
    """
    folders = [""]
    while folders:
        inside = folders.pop()
        try:
            here = os.open(f"{upper}{inside}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=kept)
        except OSError:
            continue
        try:
            for name in sorted(os.listdir(here)):
                path = f"{place}{inside}/{name}"
                new = os.stat(name, dir_fd=here, follow_symlinks=False)
                old = _real(path, host)
                if name == "__pycache__" or (old is None and _is_whiteout(new)):
                    continue
                if stat.S_ISDIR(new.st_mode):
                    folders.append(f"{inside}/{name}")
                elif old is None or _mark(old) != _mark(new):
                    yield path, old, new
        finally:
            os.close(here)


def _is_whiteout(status: os.stat_result) -> bool:
    """Return True for the mark of a removed file."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _real(path: str, host: int) -> os.stat_result | None:
    if path.startswith(SYSTEM_TREES):
        return None
    try:
        return os.stat(path.lstrip("/"), dir_fd=host, follow_symlinks=False)
    except OSError:
        return None


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mode, status.st_size, status.st_uid, status.st_gid, status.st_mtime_ns


def files_in(folders: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the marks of files in `folders` by path, of LOOKED_AT_LIMIT at most."""
    marks: dict[str, tuple[int, ...]] = {}
    waiting = list(folders)
    while waiting and len(marks) < LOOKED_AT_LIMIT:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        marks[entry.path] = _mark(entry.stat(follow_symlinks=False))
        except OSError:
            continue
    return marks


def real_changes(
    before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Return files that a program really changed or removed, as `Sandbox.changes` does.

    New ones are what the folders are for.
    """
    changed = sorted(path for path in after if before.get(path, after[path]) != after[path])
    removed = sorted(path for path in before if path not in after)
    listed = {"changed": changed[:LISTED_LIMIT], "removed": removed[:LISTED_LIMIT]}
    return {"created": [], **listed, "sealed": [], "full": False}


def remove_tree(folder: str) -> None:
    """Remove what a trial left, whatever it is; what cannot be removed stays. Raises nothing.

    A tree may be deeper than any path is long, and than Python's stack. So nothing is found by
    its path: a folder within a folder moves up beside it, and is emptied there in its turn.
    Folders that deny their owner are opened to it.
    """
    try:
        top = _opened(folder, None)
    except OSError:
        return
    prefix, moved = f".removed-{os.urandom(4).hex()}-", 0
    waiting = [""]
    try:
        while waiting:
            name = waiting.pop()
            try:
                here = _opened(name, top) if name else os.dup(top)
            except OSError:
                continue
            for inside in _full_folders(here):
                if not name:
                    waiting.append(inside)
                    continue
                moved += 1
                beside = f"{prefix}{moved}"
                with contextlib.suppress(OSError):
                    _open_to_owner(inside, here)
                    os.rename(inside, beside, src_dir_fd=here, dst_dir_fd=top)
                    waiting.append(beside)
            os.close(here)
            if name:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _full_folders(here: int) -> list[str]:
    """Remove what a folder holds; return the folders in it that are not empty."""
    full = []
    with contextlib.suppress(OSError):
        for name in os.listdir(here):
            try:
                os.unlink(name, dir_fd=here)
            except IsADirectoryError:
                try:
                    os.rmdir(name, dir_fd=here)
                except OSError:
                    full.append(name)
            except OSError:
                continue
    return full


def _opened(path: str, folder: int | None) -> int:
    """Open a folder, and it to its owner; no link is followed. Raises OSError."""
    _open_to_owner(path, folder)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)


def _open_to_owner(path: str, folder: int | None) -> None:
    """Let the owner read and change a folder. Raises OSError."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    place = os.open(path, flags, dir_fd=folder)
    try:
        if os.fstat(place).st_mode & 0o700 != 0o700:
            with contextlib.suppress(OSError):  # of another owner
                os.chmod(kernel.proc(f"self/fd/{place}"), 0o700)
    finally:
        os.close(place)
