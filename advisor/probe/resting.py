"""A training whose updates are all alike is looked through now and then; in between most hooks are
out, and only the batch, or the forward without a loader, and the end of the update are noted.

Alike: one backward pass in each update, of one optimizer, and as many batches as in the one before.
What is not seen then is filled in where the log is read: as long as in the updates that were looked
through, and where it was in them.
"""

from __future__ import annotations

import bisect
import copy
from typing import Any, Callable

from .averages import median
from .log import EXHAUSTED, Log

ALIKE = 256
"""Updates in a row that have to be alike before a rest."""
SPELL = 60
"""Updates that a rest takes. Nothing that comes by turns of few goes into it and the one after."""
BATCHES = 8
"""More of them in one update are not told apart."""


class Rest:
    """Who may rest, and for how long."""

    __slots__ = ("_alike", "_last", "_parts", "_seen", "calm_until", "left")

    def __init__(self) -> None:
        self.left = 0
        """Updates that are only noted, the running one included; 0: every hook is in."""
        self.calm_until = 0.0
        """Until then the session has nothing to do at the end of a step."""
        self._parts: list[tuple[Callable[[], object], Callable[[], object] | None]] = []
        self._alike = 0
        self._seen = 0, 0
        """Passes and batches by the end of the last update."""
        self._last: tuple[int, int, int] | None = None
        """(passes, batches, optimizer) of the last one that was looked through."""

    def part(self, out: Callable[[], object], back: Callable[[], object] | None = None) -> None:
        """A hook that `out` takes out for a rest, and `back` puts in again, if it comes back."""
        self._parts.append((out, back))

    @property
    def samples(self) -> bool:
        """So many updates were alike that not all have to be seen."""
        return self._alike >= ALIKE

    def updated(self, log: Log, optimizer: int, may_rest: Callable[[], bool]) -> None:
        """After an update that is in the log; `may_rest` where nobody wants to see more of each
        than how long it takes."""
        if self.left > 1 and may_rest():
            self.left -= 1
        elif self.left:
            self.wake(log)
        else:
            self._look_through(log, optimizer)
            if self.samples and may_rest():
                for out, _ in self._parts:
                    out()
                self.left = SPELL

    def wake(self, log: Log) -> None:
        """Look through what comes, until the end of the next update at least."""
        if self.left:
            self.left = 0
            for _, back in self._parts:
                if back is not None:
                    back()
            self._seen = log.count("backwards"), log.count("nexts")

    def start_over(self, log: Log) -> None:
        """In a process of its own."""
        self.wake(log)
        self._alike = 0

    def _look_through(self, log: Log, optimizer: int) -> None:
        """Whether the update was like the one before."""
        before = self._seen
        self._seen = log.count("backwards"), log.count("nexts")
        passes, many = self._seen[0] - before[0], self._seen[1] - before[1]
        came = log.nexts[-many:] if 0 < many <= BATCHES else []
        batches = many - sum(entry[3] == EXHAUSTED for entry in came)
        this = passes, batches, optimizer
        if this == self._last and passes == 1:
            self._alike += 1
        else:
            self._alike, self._last = 0, this


def filled(log: Log) -> Log:
    """The log with what was not seen while the probe rested; `log` itself where it never did.

    An update that was only noted has no length there: none that was seen takes no time. Its pass
    may lie before it, or inside of it where the program hands it over as a closure.
    """
    if all(enter < end for enter, end, _ in log.opts):
        return log
    whole = copy.copy(log)
    exits = [end for _, end, *_ in log.backwards]
    update_s, after_s, pass_s = _usual(log, exits)
    fed, called = ([entry[1] for entry in entries] for entries in (log.nexts, log.forwards))
    passes: list[Any] = []
    whole.opts = []
    begin = float("-inf")
    for noted, end, optimizer in log.opts:
        enter = noted
        if noted == end and bisect.bisect(exits, begin) == bisect.bisect(exits, end):
            came = max(begin, _last(fed, end))
            done = max(came, _last(called, end), end - after_s)
            passes.append((max(came, _last(called, end), done - pass_s), done, False))
            enter = max(came, end - update_s, done if after_s >= update_s else came)
        whole.opts.append((enter, end, optimizer))
        begin = end
    whole.backwards = sorted([*log.backwards, *passes])
    return whole


def _last(times: list[float], until: float) -> float:
    """The last of the sorted `times` up to `until`."""
    at = bisect.bisect(times, until) - 1
    return times[at] if at >= 0 else float("-inf")


def _usual(log: Log, exits: list[float]) -> tuple[float, float, float]:
    """Seconds of an update, from the end of its pass to its own, and of that pass, where they were
    seen."""
    found: list[tuple[float, float, float]] = []
    begin = float("-inf")
    for enter, end, _ in log.opts:
        at = bisect.bisect(exits, end) - 1
        if enter < end and at >= 0 and exits[at] > begin:
            began, done, _ = log.backwards[at]
            found.append((end - enter, end - done, done - began))
        begin = end
    if not found:
        return 0.0, 0.0, 0.0
    update_s, after_s, pass_s = (median(list(each)) for each in zip(*found))
    return update_s, after_s, pass_s
