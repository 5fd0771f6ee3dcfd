"""A run, and a decision, as a test needs them: what it does not care for is filled in."""

from __future__ import annotations

from typing import Any

from advisor.model import Decision, Run


def a_run(**given: Any) -> Run:
    """A measured run of the original, one unit a second; `given` fields of Run as they are."""
    usual: dict[str, Any] = {
        "trial_id": "001",
        "purpose": "search",
        "label": "original",
        "candidate_key": "k",
        "unit": "sample",
        "units": 1.0,
        "units_per_s": 1.0,
        "rate_source": "loader batches",
        "window_start": 0.0,
        "window_end": 1.0,
    }
    return Run(**{**usual, **given})


def a_decision(reason: str, **data: Any) -> Decision:
    """A batch of a command that was left as it is, for `reason` with its `data`."""
    return Decision(
        document="command line",
        path="--batch-size",
        kind="batch_size",
        knob_class="free",
        outcome="kept",
        old=4,
        new=4,
        reason=reason,
        data=tuple(data.items()),
    )
