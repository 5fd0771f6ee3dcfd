"""Files that the program begins anew while it runs.

A file of one pass over the data, or of the latest batch, holds no more than was written since.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .session import Session

FILES_KEPT = 1000
"""Names that are remembered; a program with more keeps a file an item."""


class Rewrites:
    """Notes each file that was emptied or replaced for a second time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begun: set[str] = set()

    def watch(self) -> None:
        """Listen to Python; this cannot be taken back."""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & os.O_TRUNC:
            self._note(args[0])
        elif event == "os.rename":
            self._note(args[1])

    def _note(self, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        try:
            full = os.path.abspath(os.fsdecode(path))
        except (OSError, ValueError):  # a name that no file can have, a folder that is gone
            return
        if full in self._begun:
            self._session.rewritten.add(full)
        elif len(self._begun) < FILES_KEPT:
            self._begun.add(full)
