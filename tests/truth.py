"""What a program says of its own work: one line a finished step, `<epoch seconds> <units>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SLACK_S = 1e-3
"""The program writes its line a little after the step that the probe timed."""

MANY_STEPS = 200
"""From so many on, one more or less at an edge changes nothing."""


def true_rate(path: Path, start: float, end: float) -> float:
    """Units/s of the steps that `path` tells of inside [start, end], by the program's own clock."""
    lines = [line.split() for line in path.read_text().splitlines()]
    rows = [(float(time), float(units)) for time, units in lines]
    inside = [row for row in rows if start - SLACK_S <= row[0] <= end + SLACK_S]
    assert len(inside) > 1, f"{len(rows)} steps were told of, {len(inside)} of them in the window"
    if len(inside) >= MANY_STEPS:  # a machine that stalls at an edge is in the window, in no row
        return sum(units for _, units in inside[1:]) / (end - start)
    return sum(units for _, units in inside[1:]) / (inside[-1][0] - inside[0][0])
