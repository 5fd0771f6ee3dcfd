"""What the hooks saw, in order of time, as flat tuples; times are `time.perf_counter()`."""

from __future__ import annotations

from typing import Any

LIMIT = 200_000
"""Entries kept of one kind; beyond it the older half is dropped."""

EXHAUSTED = -1.0
"""Items of a `next` that ended in StopIteration."""


class Log:
    """Flat lists that only grow; a hook appends one tuple and goes on."""

    def __init__(self) -> None:
        self.nexts: list[tuple[float, float, int, float]] = []
        """(enter, exit, loader, items); a loader is an index into `loaders`."""
        self.forwards: list[tuple[float, float, int, float]] = []
        """(enter, exit, root, batch) of calls at depth 0; a root is an index into `roots`."""
        self.backwards: list[tuple[float, float]] = []
        """(enter, exit)"""
        self.opts: list[tuple[float, float, int]] = []
        """(enter, exit, optimizer)"""
        self.loaders: list[dict[str, Any]] = []
        self.roots: list[dict[str, Any]] = []
        self.dropped = 0
        """Entries no longer held."""

    def trim(self) -> None:
        """Keep the lists bounded in programs that run for hours."""
        for entries in (self.nexts, self.forwards, self.backwards, self.opts):
            if len(entries) > LIMIT:
                self.dropped += LIMIT // 2
                del entries[: LIMIT // 2]

    def last_time(self) -> float | None:
        """End of the latest entry, or None before the first."""
        ends = [entries[-1][1] for entries in (self.nexts, self.forwards, self.opts) if entries]
        return max(ends) if ends else None
