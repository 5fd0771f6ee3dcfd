"""Synchronizing lines: calls per step and wait time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import SyncPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.events import EventLog
    from advisor.analysis.window import Window

MOST_POINTS = 8
RARE = 0.01
"""Fewer calls a step are none of the loop's."""


def sync_points(log: EventLog, window: Window, *, on_device: bool) -> tuple[SyncPoint, ...]:
    """Lines of the recorded steps, the costliest first.

    Steps of the window count; where none of them was recorded in full, those of the run that were.
    """
    if not log.syncs:
        return ()
    series = window.series
    bounds = _recorded(log, series.bounds[window.first : window.last + 1])
    bounds = bounds or _recorded(log, series.bounds)
    if not bounds:
        return ()
    many = len(bounds) - 1
    sums: dict[tuple[str, str], list[float]] = {}
    for sync in log.syncs:
        if bounds[0] < sync.end <= bounds[-1]:
            found = sums.setdefault((sync.site, sync.name), [0.0, 0.0])
            found[0] += 1
            found[1] += sync.end - sync.start
    points = [
        SyncPoint(
            site=site,
            call=name,
            per_step=calls / many,
            ms=1000.0 * spent / calls if on_device else None,
        )
        for (site, name), (calls, spent) in sums.items()
        if calls >= RARE * many
    ]
    points.sort(key=lambda point: -point.per_step * (point.ms or 1.0))
    return tuple(points[:MOST_POINTS])


def _recorded(log: EventLog, bounds: Sequence[float]) -> Sequence[float]:
    """Step bounds between which every call was recorded, at least two."""
    start, end = log.hooked_spans()[0]
    since, until = max(start, log.syncs[0].start), min(end, log.syncs[-1].end)
    held = [bound for bound in bounds if since <= bound <= until]
    return held if len(held) > 1 else []
