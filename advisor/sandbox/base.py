"""Isolation of one trial, as its supervisor calls it."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.sandbox.seccomp import SyscallListener


class Sandbox:
    """Isolation of one trial, called in this order; this confines nothing."""

    listener: SyscallListener | None = None
    """Decides on system calls while the program runs."""

    def __init__(self) -> None:
        self.laid: list[str] = []
        """Files on the host, removed after the program's end."""
        self.helpers: set[int] = set()
        """Processes of ours beside the program, until `end`."""

    def enter(self) -> None:
        """Enter the isolation before the program. Raises OSError."""

    def put(self, path: str, content: bytes) -> None:
        """Show `content` at `path` to the program. Raises OSError."""
        with open(path, "xb") as file:
            self.laid.append(path)
            file.write(content)

    def confine(self) -> None:
        """Confine the process just before the command."""

    def end(self) -> None:
        """End the helpers, before anything is read that the program wrote.

        With the first process of a process space ends whatever is left in it.
        """
        for pid in self.helpers:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.helpers.clear()

    def changes(self, copies: str) -> dict[str, Any] | None:
        """Changes by the program, read after its end; None if unknown.

        Keys: created, changed, removed, sealed (absolute paths; the last shown read-only),
        full (True if a layer in memory is), written_at (times of product files), results
        (new files of items and their copies in `copies`).
        """
        del copies
        return None

    def leave(self) -> None:
        """Return to the host's files and drop the layers."""
        if self.listener:
            self.listener.close()
