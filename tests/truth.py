"""What a program says of its own work: one line a finished step, `<epoch seconds> <units>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SLACK_S = 1e-3
"""The program writes its line a little after the step that the probe timed."""


def true_rate(path: Path, start: float, end: float) -> float:
    """Units/s of the steps that `path` tells of inside [start, end], by the program's own clock."""
    lines = [line.split() for line in path.read_text().splitlines()]
    rows = [(float(time), float(units)) for time, units in lines]
    inside = [row for row in rows if start - SLACK_S <= row[0] <= end + SLACK_S]
    assert len(inside) > 1, f"{len(rows)} steps were told of, {len(inside)} of them in the window"
    return sum(units for _, units in inside[1:]) / (inside[-1][0] - inside[0][0])
