"""A training whose updates are all alike is looked through now and then; in between most hooks are
out, and only the batch and the end of the update are noted.

Alike: one backward pass in each update, of one optimizer, as many batches as in the one before, or
without any the same calls of as many items. What is not seen then is filled in where the log is
read: as long as in the updates that were looked through, and where it was in them.
"""

from __future__ import annotations

import bisect
import copy
from threading import get_ident
from typing import Any, Callable, NamedTuple

from .averages import median
from .log import EXHAUSTED, Log

ALIKE = 256
"""Updates in a row that have to be alike before a rest."""
SPELL = 126
"""Updates that a rest takes. Nothing that comes by turns of few goes into it and the one after."""
BATCHES = 8
"""More of them in one update are not told apart."""


class Update(NamedTuple):
    """What was seen of one."""

    passes: int
    batches: int
    optimizer: int
    calls: tuple[tuple[int, float, bool], ...]
    """(root, items, graded) of each; not where it had batches: they tell the items."""
    tokens: float

    @property
    def ungraded(self) -> int:
        """Calls without gradients."""
        return sum(not graded for *_, graded in self.calls)


class Rest:
    """Who may rest, and for how long."""

    __slots__ = (
        "_alike", "_last", "_parts", "_seen", "_woken", "called", "calls", "calm_until", "inside",
        "left",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls: tuple[tuple[int, float, bool], ...] = ()
        """What each update of a rest calls, if its calls are looked at."""
        self.called = 0
        """How many of them came since the last update."""
        self.left = 0
        """Updates that are only noted, the running one included; 0: every hook is in."""
        self.calm_until = 0.0
        """Until then the session has nothing to do at the end of a step."""
        self.inside: Callable[[], bool] = lambda: False
        """Whether a module is being called."""
        self._parts: list[tuple[Callable[[], object], Callable[[], object] | None]] = []
        self._alike = 0
        self._seen = 0, 0, 0, 0.0
        """Passes, batches, calls and tokens by the end of the last update."""
        self._last = Update(0, 0, 0, (), 0.0)
        self._woken = False
        """Something else began since."""

    def part(self, out: Callable[[], object], back: Callable[[], object] | None = None) -> None:
        """A hook that `out` takes out for a rest, and `back` puts in again, if it comes back."""
        self._parts.append((out, back))

    @property
    def samples(self) -> bool:
        """So many updates were alike that not all have to be seen."""
        return self._alike >= ALIKE

    @property
    def last(self) -> Update:
        """The last update that was looked through and was no interruption."""
        return self._last

    def updated(self, log: Log, optimizer: int, may_rest: Callable[[], bool]) -> None:
        """After an update that is in the log; `may_rest` where nobody wants to see more of each
        than how long it takes."""
        if self.left > 1 and may_rest():
            self.left -= 1
        elif self.left:
            self._see_all(log)
        elif self._is_alike(log, optimizer) and self.samples and may_rest():
            for out, _ in self._parts:
                out()
            self.left = SPELL

    def differ(self) -> None:
        """The update that ends is unlike those before: so does the rest, and all is learnt anew."""
        self.left, self._alike = 1, 0

    def wake(self, log: Log, interrupts: bool = True) -> None:
        """Something else begins: look through what comes, until the end of an update that is like
        the others. What does not interrupt them is part of an update that is unlike them.

        Inside a module's call, or beside the thread that works, that is put off to the end of the
        running update: nobody could tell which calls come from outside.
        """
        if interrupts:
            self._woken = True
        else:
            self._alike = 0
        if self.left and (self.inside() or log.thread not in (None, get_ident())):
            self.left = 1
        elif self.left:
            self._see_all(log)

    def start_over(self, log: Log) -> None:
        """In a process of its own."""
        if self.left:
            self._see_all(log)
        self._alike = 0

    def _see_all(self, log: Log) -> None:
        self.left = 0
        for _, back in self._parts:
            if back is not None:
                back()
        self._seen = _so_far(log)

    def _is_alike(self, log: Log, optimizer: int) -> bool:
        """Whether the update was like the one before. An interruption, an evaluation say, is not,
        and makes those around it no less alike."""
        passes, many, calls, held = self._seen
        self._seen = now = _so_far(log)
        passes, many, calls, tokens = now[0] - passes, now[1] - many, now[2] - calls, now[3] - held
        came = log.nexts[-many:] if 0 < many <= BATCHES else []
        batches = many - sum(entry[3] == EXHAUSTED for entry in came)
        called = tuple(entry[2:] for entry in log.forwards[-calls:]) if calls else ()
        this = Update(passes, batches, optimizer, *(((), 0.0) if batches else (called, tokens)))
        interrupted = self._woken or this.ungraded > self._last.ungraded
        self._woken = False
        if this == self._last and passes == 1:
            self._alike += 1
            return True
        if not (interrupted and self._alike):
            self._alike, self._last = 0, this
        return False


def _so_far(log: Log) -> tuple[int, int, int, float]:
    """Passes, batches, calls, tokens."""
    tokens = sum(root.tokens[0] for root in log.roots)
    return log.count("backwards"), log.count("nexts"), log.count("forwards"), tokens


def filled(log: Log) -> Log:
    """The log with what was not seen while the probe rested; `log` itself where it never did.

    An update that was only noted has no length there: none that was seen takes no time. Its pass
    may lie before it, or inside of it where the program hands it over as a closure. Without a batch
    it called what the last one called that was looked through. Where a rest ended in the midst of
    an update (a validation before its pass, or before its step), what came before was not seen.
    """
    if all(enter < end for enter, end, _ in log.opts):
        return log
    whole = copy.copy(log)
    exits, fed, called = (
        [entry[1] for entry in entries] for entries in (log.backwards, log.nexts, log.forwards)
    )
    update_s, after_s, pass_s = _usual(log, exits)
    passes: list[Any] = []
    calls: list[Any] = []
    usual: list[Any] = []
    whole.opts = []
    begin, rested, many = float("-inf"), False, 0
    at = first = since = 0
    for noted, end, optimizer in log.opts:
        enter, before = noted, at
        at, last, until = _past(exits, at, end), _past(fed, first, end), _past(called, since, end)
        got, seen = log.nexts[first:last], log.forwards[since:until]
        first, since, passed = last, until, at > before
        own = got[:many] if rested and noted < end else got
        graded = [call for call in seen if call[4]]
        start = log.backwards[at - 1][0] if passed else end
        if noted == end and not passed:
            came = got[-1][1] if got else begin
            known = max(came, seen[-1][1]) if seen else came
            done = max(known, end - after_s)
            start = max(known, done - pass_s)
            passes.append((start, done, False))
            enter = max(came, end - update_s, done if after_s >= update_s else came)
        elif rested and noted < end and not passed:  # the rest ended after its pass
            came = own[-1][1] if own else begin
            aside = [*got[many:], *(call for call in seen if not call[4])]
            done = max(came, min([noted, *(each[0] for each in aside)]))
            start = max(came, done - pass_s)
            passes.append((start, done, False))
        elif noted < end and passed and (graded or own or not rested):
            usual = [(call[0] - start, call[1] - start, *call[2:]) for call in seen]
        if not graded and not own and (noted == end or rested):
            calls += [_moved(call, start, begin, end) for call in usual]
        whole.opts.append((enter, end, optimizer))
        begin, rested, many = end, noted == end, len(got)
    whole.backwards = sorted([*log.backwards, *passes])
    whole.forwards = sorted([*log.forwards, *calls])
    return whole


def _past(times: list[float], at: int, until: float) -> int:
    """From index `at` on, the first of the sorted `times` that is later than `until`."""
    while at < len(times) and times[at] <= until:
        at += 1
    return at


def _moved(call: Any, by: float, least: float, most: float) -> Any:
    """The call later by so much, between two moments."""
    enter, end = call[0] + by, call[1] + by
    return (min(max(least, enter), most), min(max(least, end), most), *call[2:])


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
