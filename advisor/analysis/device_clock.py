"""Device times of host moments, from CUDA events."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.analysis.events import DeviceMark

SAME_S = 1e-6
"""A mark and a step's end so close together are one moment."""


class DeviceClock:
    """Map from host times to device completion times."""

    def __init__(self, marks: Sequence[DeviceMark]) -> None:
        self.marks = marks
        self._hosts = [mark.host for mark in marks]

    def done(self, host: float) -> float:
        """Completion time of work queued by `host`."""
        at = bisect.bisect_right(self._hosts, host + SAME_S) - 1
        return host if at < 0 else max(host, self.marks[at].done)

    def is_marked(self, host: float) -> bool:
        """Return True if a mark lies at this time."""
        at = bisect.bisect_right(self._hosts, host + SAME_S) - 1
        return at >= 0 and host - self._hosts[at] <= SAME_S
