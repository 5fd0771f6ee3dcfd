"""Parts of a measured window, and their rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOWS = 8
"""Sub-windows of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of one process's window, in whole bursts."""

    start: float
    """Epoch seconds."""
    end: float
    units: float

    @property
    def seconds(self) -> float:
        """Length of the part."""
        return self.end - self.start


def window_rates(parts: Sequence[Sequence[Part]]) -> tuple[float, ...]:
    """Units/s of sub-windows, summed over processes."""
    size = max(1, min(map(len, parts), default=0) // WINDOWS)
    rates = [
        [_over(each[low : low + size]) for low in range(0, len(each) - size + 1, size)]
        for each in parts
    ]
    return tuple(sum(each) for each in zip(*rates, strict=False))


def _over(parts: Sequence[Part]) -> float:
    """Units/s, or 0 for an empty span."""
    seconds = sum(part.seconds for part in parts)
    return sum(part.units for part in parts) / seconds if seconds > 0 else 0.0
