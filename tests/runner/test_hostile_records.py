"""Nothing that a program writes ends a call; a fault in judging one run is that run's own."""

import json
import sys
from pathlib import Path

import pytest

from advisor.executor.engines import messages
from advisor.gate.process import NoRateError, read_suite
from advisor.model import MeasurePlan
from advisor.runner import trial as trials
from advisor.runner.measuring import Measuring
from advisor.runner.process_records import ProcessRecord
from tests.runner.conftest import failed
from tests.support.hostile_records import faults


@pytest.mark.slow
def test_a_few_hundred_things_a_program_could_leave_end_in_a_verdict() -> None:
    """`python -m benchmarks.fuzz_records` plays 5,000 of them."""
    assert [str(fault) for fault in faults(200, seed=7)] == []


DEEP = "[" * 100_000
"""JSON that is nested deeper than Python's stack."""


def test_json_that_is_nested_too_deep_is_unreadable() -> None:
    """A program's benchmark, and a line from a node."""
    with pytest.raises(NoRateError, match="nested too deep"):
        read_suite(DEEP.encode())
    assert messages.decode(DEEP.encode()) == {}


@pytest.mark.parametrize(
    "said", [DEEP, "", "7", '{"kind": 1}', '{"kind": "step", "count": Infinity}', "[1]"]
)
def test_a_word_to_stop_that_cannot_be_read_stops_nobody(tmp_path, said) -> None:
    """Rank 0 on another node leaves it; the program may write that file as well."""
    assert commands(tmp_path, said) == []


def test_a_word_to_stop_says_where_and_no_more(tmp_path) -> None:
    said = {"kind": "step", "count": 3, "number": 99, "phase": "count"}
    (command,) = commands(tmp_path, json.dumps(said))
    assert command == {"number": 1, "phase": "stop", "kind": "step", "count": 3}


def commands(folder: Path, said: str) -> list[object]:
    """What rank 1 of two is told, once a stop file says something."""
    probe = folder / "probe"
    probe.mkdir()
    (probe / "stop.json").write_text(said)
    Measuring(probe, MeasurePlan()).update([ProcessRecord(pid=7, rank=1, world_size=2)])
    return [json.loads(path.read_text()) for path in probe.glob("command-*.json")]


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
