"""A run, and a decision, as a test needs them: what it does not care for is filled in."""

from __future__ import annotations

from typing import Any

from advisor.model import Run


def a_run(**given: Any) -> Run:
    """A measured run of the original, one unit a second; `given` fields of Run as they are."""
    usual: dict[str, Any] = {
        "unit": "sample",
        "units": 1.0,
        "units_per_s": 1.0,
        "rate_source": "loader batches",
        "window_start": 0.0,
        "window_end": 1.0,
    }
    return Run(**{**usual, **given})
