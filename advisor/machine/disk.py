"""How fast the files of a folder can be read: a short look at existing ones, past the page cache.

Nothing is written. Largest files first, one reader, at most MOST_S and MOST_BYTES.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_S = 1.0
MOST_BYTES = 256 << 20
BLOCK = 1 << 20
LEAST_BYTES = 8 << 20
"""Less than this says nothing about a rate."""
LOOKED_AT, LOOKED_S = 20_000, 0.3
"""Directory entries, and seconds, in which files are looked for."""
SMALL_BYTES = 1 << 20
"""Files smaller than this are opened more than they are read."""
LEAST_FILES = 50
"""Fewer small files than this say nothing about how many a second."""

ROOT = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRead:
    """What reading some files of a folder gave."""

    folder: str
    files: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    filesystem: str = ""
    """`ext4`; empty where it is not told."""
    rotational: bool | None = None
    """Whether the kernel takes the disk for one that turns; virtual disks often say so too."""

    @property
    def mb_per_s(self) -> float | None:
        """None where too little could be read to tell."""
        if self.bytes_read < LEAST_BYTES or self.seconds <= 0:
            return None
        return self.bytes_read / 1e6 / self.seconds

    @property
    def small_files(self) -> bool:
        """Whether finding a file takes longer than reading it."""
        return self.bytes_read < SMALL_BYTES * self.files

    @property
    def files_per_s(self) -> float | None:
        """None where too few could be read to tell."""
        return self.files / self.seconds if self.files >= LEAST_FILES and self.seconds > 0 else None


def read_rate(folder: Path) -> DiskRead:
    """Read some files below `folder`. What cannot be opened is passed over; raises nothing."""
    real = Path(os.path.realpath(folder))
    found = sorted(_files(real), key=lambda file: -file[1])
    buffer = mmap.mmap(-1, BLOCK)  # page-aligned, as reads past the cache must be
    done = files = 0
    begun = time.monotonic()
    for path, _size in found:
        if done >= MOST_BYTES or time.monotonic() - begun >= MOST_S:
            break
        got = _read(path, buffer, MOST_BYTES - done, begun + MOST_S)
        done += got
        files += got > 0
    filesystem, device = _mount(real)
    return DiskRead(
        folder=str(folder),
        files=files,
        bytes_read=done,
        seconds=time.monotonic() - begun,
        filesystem=filesystem,
        rotational=_rotational(device),
    )


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """(path, bytes) of regular files on the folder's own file system."""
    until, looked = time.monotonic() + LOOKED_S, 0
    pending = [str(folder)]
    try:
        device = os.stat(folder).st_dev  # noqa: PTH116  one of many
    except OSError:
        return
    while pending:
        try:
            entries = os.scandir(pending.pop(0))
        except OSError:
            continue
        with entries:
            for entry in entries:
                looked += 1
                if looked > LOOKED_AT or time.monotonic() > until:
                    return
                try:
                    facts = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if facts.st_dev != device:
                    continue
                if stat.S_ISDIR(facts.st_mode):
                    pending.append(entry.path)
                elif stat.S_ISREG(facts.st_mode) and facts.st_blocks:
                    yield entry.path, min(facts.st_size, facts.st_blocks * 512)


def _read(path: str, buffer: mmap.mmap, most: int, until: float) -> int:
    """Bytes read of one file before `until`, past the page cache."""
    done = 0
    try:
        file, direct = _open(path)
    except OSError:
        return 0
    try:
        if not direct:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        while done < most and time.monotonic() < until:
            got = os.preadv(file, [buffer], done)
            done += got
            if got < BLOCK:
                break
    except OSError:
        pass  # a disk that fails there says no more
    finally:
        os.close(file)
    return done


def _open(path: str) -> tuple[int, bool]:
    """A descriptor, and whether it reads past the cache by itself. Raises OSError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_DIRECT), True
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # the file system knows no such reads
            raise
    return os.open(path, flags), False


def _mount(folder: Path, root: Path = ROOT) -> tuple[str, str]:
    """File system type and `major:minor` of the mount that `folder` lies in; empty if not told."""
    best, found = -1, ("", "")
    try:
        lines = (root / "proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        if folder.is_relative_to(point) and len(point) >= best:
            best, found = len(point), (kind[0], fields[2])
    return found


def _rotational(device: str, root: Path = ROOT) -> bool | None:
    block = Path(os.path.realpath(root / "sys/dev/block" / device)) if device else None
    for folder in (block, block.parent) if block else ():
        try:
            return (folder / "queue/rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None
