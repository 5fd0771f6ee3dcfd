"""Networks that a program calls in turn: what each takes of the window's time.

Only of inference: in a training the forwards of a network tell nothing of its backwards.
"""

from __future__ import annotations

from typing import Any

from . import steps, window
from .averages import most_common
from .clock import DeviceClock
from .log import Log

FEWEST = 2
"""Networks that make stages."""


def told(log: Log, found: window.Window, clock: DeviceClock | None = None) -> list[dict[str, Any]]:
    """The root modules with parameters that were called in the window, in the order of their first
    calls; empty of a training, and where there is only one.

    With a `clock`, which was read, the time is the device's: from when it could begin with a call
    until it was done with what that queued.
    """
    ledger = found.ledger
    units = sum(ledger.units[found.first : found.last])
    if ledger.kind in steps.TRAINING or found.seconds <= 0 or not units:
        return []
    calls: dict[int, list[tuple[float, float, float]]] = {}
    for entered, left, root, items, _ in log.forwards:
        enter, end = entered, left
        if clock is not None:
            enter, end = max(entered, clock.done(entered)), clock.done(left)
        if log.roots[root].parameters and end > found.start and enter < found.end:
            calls.setdefault(root, []).append((enter, end, items))
    if len(calls) < FEWEST:
        return []
    scale = window.watched_factor(log, found)
    return [
        {
            "name": log.roots[root].name,
            "site": log.roots[root].site,
            "share": min(
                1.0, scale * window.overlap(spans, found.start, found.end) / found.seconds
            ),
            "calls_per_unit": scale * len(spans) / units,
            "batch": most_common([items for _, _, items in spans]),
        }
        for root, spans in sorted(calls.items())
    ]
