"""What a program says of its own work: one line a finished step, `<epoch seconds> <units>`."""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SLACK_S = 1e-3
"""The program writes its line a little after the step that the probe timed."""

MANY_STEPS = 200
"""From so many on, one more or less at an edge changes nothing."""


def rate_between(path: Path, start: float, end: float) -> float:
    """Units/s in [start, end], between two steps by a straight line: where few steps lie in it."""
    rows = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
    times = [time for time, _ in rows]
    done = [0.0, *itertools.accumulate(units for _, units in rows[1:])]

    def by(when: float) -> float:
        at = min(max(1, bisect.bisect_left(times, when)), len(times) - 1)
        share = (when - times[at - 1]) / (times[at] - times[at - 1])
        return done[at - 1] + share * (done[at] - done[at - 1])

    return (by(end) - by(start)) / (end - start)


def true_rate(path: Path, start: float, end: float) -> float:
    """Units/s of the steps that `path` tells of inside [start, end], by the program's own clock."""
    lines = [line.split() for line in path.read_text().splitlines()]
    rows = [(float(time), float(units)) for time, units in lines]
    inside = [row for row in rows if start - SLACK_S <= row[0] <= end + SLACK_S]
    assert len(inside) > 1, f"{len(rows)} steps were told of, {len(inside)} of them in the window"
    if len(inside) >= MANY_STEPS:  # a machine that stalls at an edge is in the window, in no row
        return sum(units for _, units in inside[1:]) / (end - start)
    return sum(units for _, units in inside[1:]) / (inside[-1][0] - inside[0][0])
