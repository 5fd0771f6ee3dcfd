"""What the hooks saw, in order of time, as flat tuples; times are `time.perf_counter()`."""

from __future__ import annotations

import weakref
from typing import Any

from . import batches

LIMIT = 200_000
"""Entries kept of one kind; beyond it the older half is dropped."""

EXHAUSTED = -1.0
"""Items of a `next` that ended in StopIteration."""


SETTING_UP = 2
"""Batches or forwards of a program that may still be compiling."""

WATCHED_AT_FIRST = 32
WATCHED_LATER = 16
FEW_FORWARDS = 3
USED_AT_FIRST = 30
"""Fewer forwards than this in as many batches as are watched at first: some are skipped."""


class Root:
    """A module that is called from outside any module."""

    __slots__ = (
        "by_output",
        "calls",
        "counter",
        "entered",
        "inners",
        "looped",
        "module",
        "name",
        "number",
        "outputs",
        "parameters",
        "same_shape",
        "scalars",
        "seen",
        "shapes",
        "site",
        "watched",
    )

    def __init__(self, module: Any, number: int, parameters: int) -> None:
        self.module = weakref.ref(module)
        self.number = number
        self.name = type(module).__name__
        self.parameters = parameters
        self.calls = 0
        self.entered = False
        """It was called from outside any module."""
        self.counter = batches.Counter(least_depth=2)  # (args, kwargs) are no batch themselves
        self.by_output: bool | None = None
        """Only the output tells the number of items; None before the first call."""
        self.inners: list[Root] = []
        """Networks that it calls many times within one forward, see `inner`."""
        self.looped: float | None = None
        """Calls of such a network in one forward, where they are too quick to be followed."""
        self.shapes: tuple[str, ...] = ()
        self.site: str | None = None
        """`file.py:line` of its first call."""
        self.outputs: list[Any] = []
        self.seen: dict[str, Any] = {}
        self.same_shape = False
        """The output has the shape of the input: what a denoiser does, and a classifier not."""
        self.scalars: list[dict[str, Any]] = []
        """Numbers among the arguments of each call, where no loader tells items apart."""
        self.watched: list[tuple[Any, dict[str, int]]] = []
        """Leaves that carry a hook during this call, and parameters by output dtype."""


class Rota:
    """Which batches have their root forwards watched.

    All at first; then, where a batch needs few forwards, one in sixteen: they only serve to tell
    where the time goes, and watching one costs about ten microseconds.
    """

    def __init__(self) -> None:
        self.on = True
        self._seen: dict[int, int] = {}
        """Batches so far, by loader; negative for an iterative sampler's."""
        self._began: dict[int, int] = {}
        """Root forwards when a loader's first batch came."""

    def turn(self, loader: int, log: Log) -> bool:
        """Whether the batch that just came from `loader` is watched."""
        seen = self._seen[loader] = self._seen.get(loader, 0) + 1
        if seen <= WATCHED_AT_FIRST:
            self.on = True
            if seen == 1:
                self._began[loader] = len(log.forwards) + len(log.inners)
            elif seen == WATCHED_AT_FIRST:
                forwards = len(log.forwards) + len(log.inners) - self._began[loader]
                many = forwards >= FEW_FORWARDS * WATCHED_AT_FIRST
                if many or 0 < forwards < USED_AT_FIRST:
                    self._seen[loader] = -(10**9)  # its forwards are its steps, or it skips some
        else:
            self.on = not seen % WATCHED_LATER
        return self.on


class Log:
    """Flat lists that only grow; a hook appends one tuple and goes on."""

    def __init__(self) -> None:
        self.nexts: list[tuple[float, float, int, float, bool]] = []
        """(enter, exit, loader, items, watched); a loader is an index into `loaders`. Root
        forwards are only seen while the latest batch is a watched one."""
        self.forwards: list[tuple[float, float, int, float, bool]] = []
        """(enter, exit, root, batch, graded) of calls at depth 0; a root is an index into
        `roots`; graded: gradients were enabled."""
        self.inners: list[tuple[float, float, int, float, bool]] = []
        """The same of networks called many times within a root's forward."""
        self.running: tuple[float, int] | None = None
        """(enter, root) of the root that runs, where its inner calls are followed."""
        self.backwards: list[tuple[float, float]] = []
        """(enter, exit)"""
        self.opts: list[tuple[float, float, int]] = []
        """(enter, exit, optimizer)"""
        self.copies: list[tuple[float, float]] = []
        """(enter, exit) of what copies to a device, where the program uses one."""
        self.waits: list[tuple[float, float]] = []
        """(enter, exit) of what waits for a device."""
        self.saves: list[tuple[float, float]] = []
        """(enter, exit) of torch.save and the like."""
        self.loaders: list[dict[str, Any]] = []
        self.roots: list[Root] = []
        self.warm_until = 0.0
        """Until then a one-time cost was being paid; the window begins later."""
        self.dropped = 0
        """Entries no longer held."""

    def trim(self) -> None:
        """Keep the lists bounded in programs that run for hours."""
        for entries in (
            self.nexts,
            self.forwards,
            self.inners,
            self.backwards,
            self.opts,
            self.copies,
            self.waits,
            self.saves,
        ):
            if len(entries) > LIMIT:
                self.dropped += LIMIT // 2
                del entries[: LIMIT // 2]

    def at_work(self) -> bool:
        """Steps come and go; before that, a long silence is start-up (workers, compilation)."""
        most = max(len(self.forwards), len(self.inners), len(self.nexts))
        return bool(self.opts) or most > SETTING_UP

    def last_items(self) -> float:
        """Items of the latest batch, or forward; 0 before any."""
        entries = self.nexts or self.forwards
        return max(entries[-1][3], 0.0) if entries else 0.0

    def last_time(self) -> float | None:
        """End of the latest entry, or None before the first."""
        ends = [
            entries[-1][1]
            for entries in (self.nexts, self.forwards, self.inners, self.opts)
            if entries
        ]
        return max(ends) if ends else None
