"""Parts of a measured window, and the rates of its sub-windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOWS = 8
"""Sub-windows of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Stretch of one process' window, of whole bursts of steps."""

    start: float
    """Epoch seconds."""
    end: float
    units: float

    @property
    def seconds(self) -> float:
        """Length of the part."""
        return self.end - self.start


def window_rates(parts: Sequence[Sequence[Part]]) -> tuple[float, ...]:
    """Units/s of consecutive sub-windows of equally many parts, the processes added up."""
    size = max(1, min(map(len, parts), default=0) // WINDOWS)
    rates = [
        [_over(each[low : low + size]) for low in range(0, len(each) - size + 1, size)]
        for each in parts
    ]
    return tuple(sum(each) for each in zip(*rates, strict=False))


def _over(parts: Sequence[Part]) -> float:
    """Units/s; 0 for the rest of a window that took no time."""
    seconds = sum(part.seconds for part in parts)
    return sum(part.units for part in parts) / seconds if seconds > 0 else 0.0
