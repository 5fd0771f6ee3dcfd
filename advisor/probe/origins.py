"""Source files that a run loaded from the project.

Python tells an audit hook of every code object it is about to run, of every extension and of every
file it opens. What lies in one of the two checkouts, or is named like a file that differs between
them, becomes a line of `loaded.jsonl` at once, so that a process that is killed has told it too.
One file serves all processes of the trial: each line is appended whole.
"""

from __future__ import annotations

import json
import os
import sys
from threading import get_ident
from typing import Any

from .session import Session

FILE = "loaded.jsonl"
LINES = 4000
"""Limit of files recorded by one process."""
HASHED_BYTES = 16 << 20
"""Size limit in bytes of a hashed file."""


class Origins:
    """Tells of each file once."""

    def __init__(self, session: Session) -> None:
        spec = session.spec.get("origins") or {}
        self._roots = tuple(os.path.join(str(root), "") for root in spec.get("roots", ()))
        self._names = frozenset(map(str, spec.get("names", ())))
        self._path = os.path.join(session.records, FILE)
        self._asked: set[tuple[str, str]] = set()
        self._reported: set[tuple[str, str]] = set()
        self._busy: set[int] = set()
        """Threads that are in here; the others go on telling."""

    def watch(self) -> None:
        """Listen to Python; this cannot be taken back."""
        if self._roots:
            import hashlib  # noqa: F401  not later, in the middle of an import of the program's

            sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "exec":
            self._note("ran", getattr(args[0], "co_filename", None))
        elif event == "import":
            self._note("ran", args[1])  # an extension; other modules are recorded as code
        elif event == "open" and not _writes(args):
            self._note("opened", args[0])

    def _note(self, how: str, path: Any) -> None:
        thread = get_ident()
        if thread in self._busy or not isinstance(path, (str, bytes, os.PathLike)):
            return
        self._busy.add(thread)  # what is done here opens files too
        try:
            name = os.fsdecode(path)
            if how == "opened" and os.path.basename(name) not in self._names:
                return  # one of a million images
            if (how, name) not in self._asked and not name.startswith("<"):
                if os.path.isabs(name):  # else it depends on the folder of the moment
                    self._asked.add((how, name))
                self._look(how, os.path.realpath(name))
        except (OSError, TypeError, ValueError):
            pass
        finally:
            self._busy.discard(thread)

    def _look(self, how: str, full: str) -> None:
        named = os.path.basename(full) in self._names
        inside = full.startswith(self._roots)
        wanted = named or (inside and how == "ran")
        if not wanted or (how, full) in self._reported or len(self._reported) >= LINES:
            return
        self._reported.add((how, full))
        line = {"how": how, "path": full, "sha256": _digest(full) if named else None}
        data = json.dumps(line).encode("ascii") + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, data)
        finally:
            os.close(file)


def _writes(args: tuple[Any, ...]) -> bool:
    mode, flags = args[1], args[2] if len(args) > 2 else 0
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) != 0


def _digest(path: str) -> str | None:
    """Digest of a file's current bytes, or None."""
    import hashlib

    try:
        if not os.path.isfile(path) or os.path.getsize(path) > HASHED_BYTES:
            return None
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None
