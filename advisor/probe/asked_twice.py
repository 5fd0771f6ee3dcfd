"""Whether items of a dataset come quicker, or as others, when they are asked for again.

What a dataset keeps may lie where no reading of its attributes comes: in a library's own
memory. It pays from the second pass on, which a short trial may not reach, and workers that
begin anew with each pass never have it. So a few items are timed twice after the window. A
forked copy of the process asks for them first: what the disk's cache gains is paid by then, and
is workers' too. What comes is compared as well: where items come again as they were, and leave
every random generator as before, each of them seeds what it draws from.
"""

from __future__ import annotations

import os
import signal
from statistics import median
from typing import Any

from . import batches, dataset_state, work_facts
from .clocks import clock, sleep
from .session import Session

# By judgement: a few items tell a cache from none, and each costs its time twice.
ITEMS = 8
"""Items that are asked for, spread over the data: a cache of the latest few has lost them."""
FEWEST = 4
"""Items whose median time tells anything."""
LONGEST_S = 2.0
"""Seconds after which no more items are asked for; the copy may take twice as long.

Judgement: shorter leaves slow items, which gain most of a cache, without an answer. Longer costs a
baseline up to four times as much."""


def answers(session: Session, dataset: Any) -> dict[str, Any]:
    """`items_ms`: median times of items and of the same again; `items_alike`: they came equal,
    and left the random generators as the first time.

    Empty where that cannot be told.
    """
    count = len(dataset)
    places = sorted({number * count // ITEMS for number in range(ITEMS)})
    if len(places) < FEWEST or not _asked_in_a_copy(session, dataset, places):
        return {}
    first = _asked(session, dataset, places)
    if len(first) < FEWEST:
        return {}
    again = _asked(session, dataset, places[: len(first)])
    times_ms = [1000 * median(seconds for seconds, _ in asked) for asked in (first, again)]
    old, new = ([content for _, content in asked] for asked in (first, again))
    alike = old == new if all(numbers for numbers, _ in old) else None
    return {"items_ms": times_ms, "items_alike": alike}


def _asked(
    session: Session, dataset: Any, places: list[int]
) -> list[tuple[float, tuple[list[int], dict[str, str]]]]:
    """Seconds that each item takes, numbers that stand for it, and the generators after it.

    Ends where all together take too long.
    """
    asked: list[tuple[float, tuple[list[int], dict[str, str]]]] = []
    left_s = LONGEST_S
    for place in places:
        begun = clock()
        item = dataset[place]
        seconds = clock() - begun
        generators = dataset_state.generators(work_facts.state_of(session, dataset, None))
        asked.append((seconds, (batches.rows(item, 0), generators)))
        left_s -= seconds
        if left_s < 0:
            break
    return asked


def _asked_in_a_copy(session: Session, dataset: Any, places: list[int]) -> bool:
    """Ask for the items in a forked process; return True if it ended well."""
    child = os.fork()
    if not child:
        try:
            session.muted = True
            _asked(session, dataset, places)
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
