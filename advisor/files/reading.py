"""Bounded, non-blocking reads that follow no link out of a folder."""

import contextlib
import difflib
import errno
import itertools
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath
from typing import Any

MAX_BYTES = 64 * 1024 * 1024
"""Largest record read; real ones are below 1 MiB."""
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
}


def read_whole(path: Path, limit_bytes: int = MAX_BYTES) -> bytes:
    """Read a regular file whole. Raises OSError."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        kind = KINDS.get(stat.S_IFMT(facts.st_mode), "no regular file")
        raise OSError(errno.EINVAL, f"is {kind}")
    if not facts.st_mode & 0o444:
        raise OSError(errno.EACCES, "has no read permission")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        size, limit = (
            facts.st_size / 2**20,
            f"more than {limit_bytes // 2**20} MiB is not read",
        )
        raise OSError(errno.EFBIG, f"is {size:.1f} MiB; {limit}")
    return content


NEAR = 0.7
"""Least likeness of a name that is offered in place of another, from 0 to 1 (difflib's).

Judgement: difflib's own 0.6 offers `test.yaml` for `train.yaml`."""
MOST_FOLDERS = 50
"""Folders in which a file of a near name is looked for."""
MOST_FILES = 1000
"""Files of each such folder."""


def near(path: Path) -> str:
    """Sentence that offers a file of a near name, beside `path` or one folder below."""
    places: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        folders = [e for e in sorted(path.parent.iterdir()) if e.is_dir()][:MOST_FOLDERS]
        for folder in (path.parent, *(e for e in folders if e.name[:1] != ".")):
            with contextlib.suppress(OSError):
                for each in itertools.islice(folder.iterdir(), MOST_FILES):
                    if each.is_file() and each.name[:1] != ".":
                        places.setdefault(each.name, each)
    names = difflib.get_close_matches(path.name, places, n=1, cutoff=NEAR)
    return f"Did you mean {places[names[0]]}?" if names else ""


ALONE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(folder: Path, name: str, limit_bytes: int) -> bytes:
    """Read a regular file below `folder`. Raises OSError."""
    content = read_on(folder, name, 0, limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it has more than {limit_bytes} bytes", name)
    return content


def read_on(folder: Path, name: str, offset: int, limit_bytes: int) -> bytes:
    """Read a regular file from `offset`. Raises OSError."""
    with _parent(folder, name) as (parent, last):
        handle = os.open(last, os.O_RDONLY | ALONE, dir_fd=parent)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", name)
        file.seek(offset)
        return file.read(limit_bytes)


def create(folder: Path, name: str) -> int:
    """Create a file below `folder`; return its descriptor."""
    with _parent(folder, name) as (parent, last):
        return os.open(
            last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | ALONE, 0o644, dir_fd=parent
        )


def put(folder: Path, name: str, content: bytes) -> None:
    """Write a file below `folder` atomically. Raises OSError."""
    draft = str(PurePath(name).with_name(f".{secrets.token_hex(6)}"))
    with os.fdopen(create(folder, draft), "wb") as file:
        file.write(content)
    with _parent(folder, name) as (parent, last):
        os.rename(PurePath(draft).name, last, src_dir_fd=parent, dst_dir_fd=parent)


def from_json(text: str | bytes) -> Any:
    """Read JSON that others wrote. Raises ValueError alone, however deep it is nested."""
    try:
        return json.loads(text)
    except RecursionError as problem:
        msg = "it is nested too deep"
        raise ValueError(msg) from problem


@contextlib.contextmanager
def _parent(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    *between, last = PurePath(name).parts
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for part in between:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(part, flags, dir_fd=opened[-1]))
        yield opened[-1], last
    finally:
        for number in opened:
            os.close(number)


def sources(folder: Path, suffixes: Collection[str] = (".py",)) -> Iterator[Path]:
    """Files of a program below `folder`, but those of environments, caches and hidden folders.

    Those with one of `suffixes`: Python's, by default.
    """
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if _may_hold_sources(here / name))
        for name in sorted(files):
            path = here / name
            if path.suffix in suffixes and name[0] != "." and not path.is_symlink():
                yield path


def _may_hold_sources(folder: Path) -> bool:
    """False for hidden folders, caches and virtual environments."""
    is_other = folder.name[0] == "." or folder.name in {"__pycache__", "node_modules"}
    return not is_other and not os.path.exists(folder / "pyvenv.cfg")  # noqa: PTH110  never raises
