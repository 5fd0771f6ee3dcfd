"""Output files: claimed before anything is spent, written whole.

A place is ours if it holds nothing, an empty file, or one with our mark. All places are checked
before the first trial, since to learn after an hour that the report cannot be written is too late.
They are checked again as they are written: in that hour somebody may have put a file there.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.errors import OutputRefusedError
from advisor.files import atomic, reading

MARKS = {
    ".md": "<!-- written by gpu-advisor -->",
    ".html": "<!-- written by gpu-advisor -->",
    ".svg": "<!-- written by gpu-advisor -->",
    ".patch": "# written by gpu-advisor",
    ".json": '"written_by": "gpu-advisor"',
}
"""By suffix: mark of an output, on a line near its start or end."""

LEAST_BYTES = 1 << 16
"""Room in bytes that a disk must have for an output, which is tried by writing so much.

Judgement: less finds a full disk only after the whole call. More refuses a disk on which the output
still fits."""
_LOOKED_AT = 512
"""Bytes at either end that may hold a file's mark.

Judgement: fewer misses our mark behind a long line, so that our own output is not replaced. More
may find a mark that a user's text quotes, and replace that file."""


def is_marked(path: Path) -> bool:
    mark = MARKS.get(path.suffix)
    if mark is None:
        return False
    with path.open("rb") as file:
        start = file.read(_LOOKED_AT)
        file.seek(-min(_LOOKED_AT, os.fstat(file.fileno()).st_size), os.SEEK_END)
        end = file.read(_LOOKED_AT)
    line = re.compile(
        rb"^\s*" + re.escape(mark.encode()) + rb"[,:]?[^\n]{0,80}$", re.MULTILINE
    )
    return bool(line.search(start) or line.search(end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Output places checked for writing, by real path."""

    places: frozenset[Path]
    never: tuple[Path, ...]
    """User's files that no place may be, under any name."""
    mode: int
    """Permissions of writes: never more than the config's."""
    overwrite: bool

    def write(self, path: Path, content: bytes) -> None:
        """Write one claimed place whole. Raises OutputRefusedError."""
        place, before = self._claimed(path)
        mode = self.mode & before.st_mode | 0o600 if before else self.mode
        try:
            folder_mode = self.mode | (self.mode & 0o444) >> 2
            place.parent.mkdir(parents=True, exist_ok=True, mode=folder_mode)
            atomic.place(place, content, mode)
        except OSError as problem:
            raise _refusal(path, f"could not be written: {problem.strerror}") from problem

    def remove(self, path: Path) -> None:
        """Remove one claimed file, if present. Raises OutputRefusedError."""
        place, _ = self._claimed(path)
        place.unlink(missing_ok=True)

    def also(self, paths: Iterable[Path]) -> "Claim":
        """With more places, whose names were not known before. Raises OutputRefusedError."""
        more = frozenset(Path(os.path.realpath(path)) for path in paths)
        for place in more:
            _refuse_foreign(place, self)
        return replace(self, places=self.places | more)

    def _claimed(self, path: Path) -> tuple[Path, os.stat_result | None]:
        place = Path(os.path.realpath(path))
        if place not in self.places:
            raise _refusal(path, f"leads to {place} since it was looked at")
        return place, _refuse_foreign(place, self)


def claim(
    paths: Iterable[Path],
    *,
    never: Iterable[Path] = (),
    like: Path | None = None,
    overwrite: bool = False,
) -> Claim:
    """Check and claim every place before a run. Raises OutputRefusedError.

    Files in `never` stay, even with `overwrite`; outputs are as private as the file `like`.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    widest = like.stat().st_mode if like is not None else 0o666
    claimed: list[Path] = []
    for path in paths:
        place = Path(os.path.realpath(path))
        if place in claimed:
            raise _refusal(path, "would be written twice, by two outputs")
        claimed.append(place)
    found = Claim(
        places=frozenset(claimed),
        never=tuple(Path(os.path.realpath(path)) for path in never),
        mode=(widest & 0o666 & ~umask) | 0o600,
        overwrite=overwrite,
    )
    for place in claimed:
        _refuse_foreign(place, found)
        _refuse_unwritable(place)
    return found


def _refusal(place: Path, why: str) -> OutputRefusedError:
    return OutputRefusedError(f"{place} {why}. Name another place.")


def _refuse_foreign(place: Path, claimed: Claim) -> os.stat_result | None:
    """Refuse another's file; else its facts. Raises OutputRefusedError."""
    try:
        facts = place.lstat()
    except FileNotFoundError:
        facts = None
    except OSError as problem:
        raise _refusal(place, f"cannot be written: {problem.strerror}") from problem
    if place in claimed.never or (
        facts and any(_same(path, facts) for path in claimed.never)
    ):
        raise _refusal(place, "is the config, or another file of this call")
    if facts is None:
        return None
    if not stat.S_ISREG(facts.st_mode):
        kind = reading.KINDS.get(stat.S_IFMT(facts.st_mode), "no regular file")
        raise _refusal(place, f"is {kind}, so no output can go there")
    try:
        is_free = claimed.overwrite or not facts.st_size or is_marked(place)
    except OSError as problem:
        raise _refusal(place, f"cannot be read: {problem.strerror}") from problem
    if not is_free:
        msg = (
            f"{place} is there already and was not written by gpu-advisor, or was edited since. "
            "Name another place, move the file, or call with --overwrite."
        )
        raise OutputRefusedError(msg)
    return facts


def _refuse_unwritable(place: Path) -> None:
    """Try to write there unnamed. Raises OutputRefusedError."""
    folder = place.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LEAST_BYTES))
    except OSError as problem:
        reason = f"cannot be written in {folder}: {problem.strerror}"
        raise _refusal(place, reason) from problem


def _same(path: Path, facts: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), facts)
    except OSError:
        return False
