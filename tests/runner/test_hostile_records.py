"""Nothing that a program writes ends a call; a fault in judging one run is that run's own."""

import sys

import pytest

from advisor.model import MeasurePlan
from advisor.runner import trial as trials
from tests.runner.conftest import failed
from tests.support.hostile_records import faults


@pytest.mark.slow
def test_a_few_hundred_things_a_program_could_leave_end_in_a_verdict() -> None:
    """`python -m benchmarks.fuzz_records` plays 5,000 of them."""
    assert [str(fault) for fault in faults(200, seed=7)] == []


@pytest.mark.parametrize("at_fault", ["measured_run", "classify"])
def test_a_fault_of_ours_is_a_failure_of_that_run(make_trial, monkeypatch, at_fault) -> None:
    """It names itself, and the call goes on."""

    def falls(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(trials, at_fault, falls)
    outcome = failed(make_trial(sys.executable, "-c", "", plan=MeasurePlan(mode="whole")))
    assert outcome.kind == "not-judged"
    assert "ZeroDivisionError at test_hostile_records.py" in outcome.evidence
    assert "Traceback" in outcome.log_tail
