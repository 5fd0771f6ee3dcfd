"""What a program says of its own work: one line a finished step, `<epoch seconds> <units>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def true_rate(path: Path, start: float, end: float) -> float:
    """Units/s of the steps that `path` tells of inside [start, end), by the program's own clock.

    Where the probe sees a step's end, the program tells of it a moment later (or sooner): at both
    edges alike, however long the machine stalls in between, so that the number of steps is exact.
    """
    inside = [units for time, units in steps(path) if start <= time < end]
    assert inside, f"of {len(steps(path))} steps none was told of in the window"
    return sum(inside) / (end - start)


def steps(path: Path) -> list[tuple[float, float]]:
    """(epoch seconds, units) of each step that `path` tells of."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(time), float(units)) for time, units in lines]
