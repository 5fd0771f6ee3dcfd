"""Source files that a run loaded from the project.

An audit hook sees all code that Python runs and all files it opens. What lies in one of
the two checkouts, or is named like a file that differs between them, becomes a line of
`loaded.jsonl` at once: a killed process has left it too.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from .guard import writes
from .recorder import write_whole
from .session import Session

FILE = "loaded.jsonl"
LINES = 4000
"""Limit of files recorded by one process."""
HASHED_BYTES = 16 << 20
"""Larger files are told without a digest."""


class OriginListener:
    """Tells of each file once."""

    def __init__(self, session: Session) -> None:
        spec = session.spec["origins"]
        self._roots = tuple(os.path.join(str(root), "") for root in spec.get("roots", ()))
        self._names = frozenset(map(str, spec.get("names", ())))
        self._path = os.path.join(session.records, FILE)
        self._reported: set[tuple[str, str]] = set()

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Python's audit hook, which cannot be removed."""
        try:
            if event == "exec":
                self._look("ran", os.fsdecode(args[0].co_filename))
            elif event == "import" and args[1]:
                self._look("ran", os.fsdecode(args[1]))  # an extension; others come as code
            elif event == "open" and not writes(*args[1:]):
                name = os.fsdecode(args[0])
                if os.path.basename(name) in self._names:  # else one of a million images
                    self._look("opened", name)
        except (AttributeError, OSError, TypeError, ValueError):
            pass

    def _look(self, how: str, name: str) -> None:
        full = os.path.realpath(name)
        named = os.path.basename(full) in self._names
        wanted = named or (how == "ran" and full.startswith(self._roots))
        if name.startswith("<") or not wanted or (how, full) in self._reported:
            return
        if len(self._reported) < LINES:
            self._reported.add((how, full))  # before its digest, which opens it again
            line = {"how": how, "path": full, "sha256": _digest(full) if named else None}
            write_whole(self._path, json.dumps(line) + "\n", os.O_APPEND)


def _digest(path: str) -> str | None:
    if not os.path.isfile(path) or os.path.getsize(path) > HASHED_BYTES:
        return None
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
