"""A window that others disturb grows, until enough of it was clean or there is no hope of it.

Who watches from outside keeps a file of the spans in which others were in the way; it is read only
when a window is full. Without the file, or where nobody writes it any more, the window stays as
long as it was planned.
"""

from __future__ import annotations

import json
import os
from typing import Any

FILE = "disturbed.json"
"""{"spans": [[start, end], ...]} in epoch seconds, in order, apart from each other."""
LONGEST = 4.0
"""No window grows past so many times its planned seconds."""
HOPELESS = 0.1
"""Where less than this share of a full window was clean, more of it would hardly be either."""


def more_s(records: str, start: float, end: float, measure_s: float) -> float:
    """Seconds that a full window (epoch seconds) should go on; 0 where it should not.

    It goes on until `measure_s` of it were clean, as long as there is some hope of that.
    """
    length = end - start
    clean = length - disturbed_s(spans(records), start, end)
    missing = min(measure_s, length) - clean
    left = LONGEST * measure_s - length
    if missing <= 0.05 * measure_s or left <= 0 or clean < HOPELESS * length:
        return 0.0
    return min(left, max(0.1, missing))


def spans(records: str) -> list[tuple[float, float]]:
    """The disturbed spans so far; none where the file is not there or broken."""
    try:
        with open(os.path.join(records, FILE), encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
        return [(float(start), float(end)) for start, end in told["spans"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def disturbed_s(found: list[tuple[float, float]], start: float, end: float) -> float:
    """Seconds of [start, end] that lie in the spans."""
    inside = [(max(a, start), min(b, end)) for a, b in found if b > start and a < end]
    return sum(b - a for a, b in inside)
