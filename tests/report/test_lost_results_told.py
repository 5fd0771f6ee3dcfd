"""Every way to lose results has its sentence."""

from __future__ import annotations

import pytest

from advisor.report import sentences
from tests.runs import a_decision

LOST = {
    "left-out": {"batch": 8.0, "left_out": 3, "left_out_before": 0},
    "fewer-files": {"files": 5, "expected": 40.0},
    "fewer-items": {"file": "p.jsonl", "items": 5, "expected": 40.0},
    "other-items": {"file": "p.jsonl", "item": 3},
}


@pytest.mark.parametrize("stop", LOST)
def test_a_batch_that_is_given_up_for_its_results_says_why(stop: str) -> None:
    """With what was seen, whichever comparison gave it up."""
    told = sentences.why(a_decision("loses-results", stop=stop, value=8, **LOST[stop]))
    assert told.startswith("Not written. ")
    assert "8" in told
