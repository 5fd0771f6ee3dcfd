"""Whether items of a dataset come quicker when they are asked for again.

What a dataset keeps may lie where no reading of its attributes comes: in a library's own
memory. It pays from the second pass on, which a short trial may not reach, and workers that
begin anew with each pass never have it. So a few items are timed twice after the window. A
forked copy of the process asks for them first: what the disk's cache gains is paid by then, and
is workers' too.
"""

from __future__ import annotations

import os
import signal
from statistics import median
from typing import Any

from .clocks import clock, sleep
from .session import Session

# By judgement: a few items tell a cache from none, and each costs its time twice.
ITEMS = 8
"""Items that are asked for, spread over the data: a cache of the latest few has lost them."""
FEWEST = 4
"""Items whose median time tells anything."""
LONGEST_S = 2.0
"""No more items are asked for after so long; the copy may take twice as long."""


def times_ms(session: Session, dataset: Any) -> tuple[float, float] | None:
    """Median times of items and of the same again; None where that cannot be told."""
    count = len(dataset)
    places = sorted({number * count // ITEMS for number in range(ITEMS)})
    if len(places) < FEWEST or not _asked_in_a_copy(session, dataset, places):
        return None
    first_s = _times_s(dataset, places)
    if len(first_s) < FEWEST:
        return None
    again_s = _times_s(dataset, places[: len(first_s)])
    return 1000 * median(first_s), 1000 * median(again_s)


def _times_s(dataset: Any, places: list[int]) -> list[float]:
    """Seconds that each item takes, until all together take too long."""
    times_s: list[float] = []
    for place in places:
        begun = clock()
        dataset[place]
        times_s.append(clock() - begun)
        if sum(times_s) > LONGEST_S:
            break
    return times_s


def _asked_in_a_copy(session: Session, dataset: Any, places: list[int]) -> bool:
    """Ask for the items in a forked process; return True if it ended well."""
    child = os.fork()
    if not child:
        try:
            session.muted = True
            _times_s(dataset, places)
        finally:
            session.leave(0)
    until = clock() + 2 * LONGEST_S
    while clock() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
