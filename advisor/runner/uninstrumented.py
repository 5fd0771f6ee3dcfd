"""Uninstrumented Python processes of a trial.

The probe comes by the environment. Whoever clears it (`env -i`, `sudo`, a program that replaces
itself) or starts Python with an option that ignores it is seen from outside alone.
"""

from __future__ import annotations

import os
import time

import psutil

from advisor.probe.env_propagation import SPEC, isolating
from advisor.runner.launch import START


class UninstrumentedScan:
    """Scan of a process tree for uninstrumented programs."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, ...]] = {}
        self.lost: dict[int, str] = {}
        """By pid: command line and reason, of those that were without the probe to the last."""
        self.since: float | None = None
        """Epoch seconds of the first of them."""

    def look(self, tree: list[psutil.Process]) -> None:
        """Note uninstrumented processes of `tree`."""
        for process in tree:
            try:
                command = tuple(process.cmdline())
                if self._known.get(process.pid) == command or START in command:  # a supervisor
                    continue
                self._known[process.pid] = command
                self.lost.pop(process.pid, None)
                why = _why(process, command)
            except psutil.Error:
                continue
            if why is not None:
                self.since = self.since or time.time()
                self.lost[process.pid] = f"`{' '.join(command)[:200]}` {why}"


def _why(process: psutil.Process, command: tuple[str, ...]) -> str | None:
    if not command or not os.path.basename(command[0]).startswith("python"):  # noqa: PTH119
        return None
    option = isolating(command)
    if option is not None:
        return f"keeps the probe out by {option}"
    try:
        seen = SPEC in process.environ()
    except psutil.AccessDenied:
        return "runs as another user, whose environment is its own"
    return None if seen else "runs in an environment that was cleared, so the probe is not in it"
