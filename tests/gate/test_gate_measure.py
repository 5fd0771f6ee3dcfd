"""One process to rates: which source wins, and what is refused as no rate."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from advisor.gate import suites
from advisor.gate.base import Checkout
from advisor.gate.measure import Bench, entry, last_told, probe_rate
from advisor.gate.program import THROUGHPUT_LINE, Program
from advisor.gate.records import Revision
from advisor.model import Effects, Failure, MeasurePlan
from advisor.runner.limits import Limits
from advisor.runner.output import plain
from tests.runs import a_run
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula

PROGRAM = Program(name="train", command="python train.py", unit="sample")

RUN = a_run(
    label="head", units=1000.0, units_per_s=200.0, rate_source="optimizer steps x batch",
    windows=(210.0, 190.0, 205.0, 195.0, 220.0, 180.0, 200.0, 200.0), whole_units=1100.0,
    window_end=5.0, exit_code=0, wall_s=6.0, effects=Effects(batch=8.0, workers=0, dtype="float32"),
)  # fmt: skip

NO_STEPS = Failure(
    trial_id="1", purpose="gate", label="head", candidate_key="k", kind="no-steps",
    evidence="no step was seen", next_step="", exit_code=0, wall_s=4.0,
)  # fmt: skip


def suite(**stats: float) -> bytes:
    return json.dumps(
        {"benchmarks": [{"fullname": "b.py::test_x", "stats": {"mean": 0.5, **stats}}]}
    ).encode()


def measured(result, tmp_path, *, output="", suite_json=None, whole=True, metric="throughput"):
    path = tmp_path / "benchmark.json"
    if suite_json is not None:
        path.write_bytes(suite_json)
    return entry(
        result, PROGRAM, arm="head", started=0.0, wall_s=6.5, output=output,
        benchmark_json=path, gpu=None, whole=whole, metric=metric,
    )  # fmt: skip


def test_the_programs_own_line_wins_over_all(tmp_path) -> None:
    found = measured(RUN, tmp_path, output="x\nthroughput: 123.4\n", suite_json=suite())
    assert (found.source, found.rates["train"].mean) == ("throughput line", 123.4)


def test_a_suite_wins_over_the_probe(tmp_path) -> None:
    found = measured(RUN, tmp_path, suite_json=suite())
    assert found.source == "pytest-benchmark"
    assert found.rates["b.py::test_x"].mean == 2.0


def test_the_probe_wins_over_the_time_of_the_run(tmp_path) -> None:
    found = measured(RUN, tmp_path)
    assert (found.source, found.rates["train"].mean) == ("probe", 200.0)
    assert found.effects["dtype"] == "float32"


def test_the_time_of_the_run_is_what_is_left(tmp_path) -> None:
    found = measured(NO_STEPS, tmp_path)
    assert (found.source, found.rates["train"].mean) == ("whole-run time", 0.25)
    assert found.rates["train"].unit == "run"


@pytest.mark.parametrize(
    "output",
    ["\n" * 400_000, " " * 4_000_000, "throughput:" * 400_000, "\x1b[" * 1_000_000,
     "throughput: " + "9" * 4_000_000, ("throughput: x" + " " * 80 + "\n") * 40_000],
    ids=["blank lines", "blanks", "words", "escapes", "digits", "lines"],
)  # fmt: skip
def test_no_output_makes_the_search_for_a_rate_slow(output: str) -> None:
    """Line by line, in the beginning of each: a search that goes back and forth would take hours,
    and never come to the line that tells it."""
    said = plain(f"throughput: 7\n{output}".encode())
    for pattern in (THROUGHPUT_LINE, r"^\s*throughput:\s*(\S+)"):
        assert last_told(said, pattern) is not None
    assert last_told(said, r"([\d.]+) samples/s") is None


@pytest.mark.parametrize("said", ["1,234.5", "1_000", "12,345,678", "1_0"])
def test_a_number_with_separators_is_refused_with_how_to_write_it(tmp_path, said: str) -> None:
    """1,234 may be a thousand or one and a bit, and Python would take 1_000 and not 1,000."""
    found = measured(RUN, tmp_path, output=f"throughput: {said}")
    assert found.problem is not None
    assert "without separators" in found.problem.evidence
    assert said in found.problem.evidence


def test_what_a_program_left_in_the_place_of_a_suite_is_not_followed(tmp_path) -> None:
    """A link to another file, a pipe on which nobody writes, a folder: there is no suite."""
    real = tmp_path / "elsewhere"
    real.write_bytes(suite())
    place = tmp_path / "benchmark.json"
    for make in (lambda: place.symlink_to(real), lambda: os.mkfifo(place), place.mkdir):
        make()
        assert measured(RUN, tmp_path).source == "probe"
        place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()


def test_metric_asks_for_one_source_alone(tmp_path) -> None:
    output = "throughput: 123.4"
    assert measured(RUN, tmp_path, output=output, metric="probe").source == "probe"
    assert measured(RUN, tmp_path, output=output, metric="run-time").source == "whole-run time"
    missing = measured(NO_STEPS, tmp_path, output=output, metric="probe")
    assert missing.problem is not None
    assert missing.problem.kind == "no-steps"


def test_a_failure_is_a_failure_whatever_it_printed(tmp_path) -> None:
    crashed = dataclasses.replace(NO_STEPS, kind="crash-step", exit_code=1)
    found = measured(crashed, tmp_path, output="throughput: 123.4")
    assert found.problem is not None
    assert (found.problem.kind, found.rates) == ("crash-step", {})
    killed = dataclasses.replace(NO_STEPS, exit_code=1)
    assert measured(killed, tmp_path).problem is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("throughput: 12.5", "12.5"),
        ("  throughput:   3e4 samples/s", "3e4"),
        ("throughput: 1\nepoch 2\nthroughput: 2\nbye", "2"),
        ("my throughput: 5", None),
        ("throughput 5", None),
        ("", None),
    ],
)
def test_the_last_line_that_says_a_throughput_counts(text: str, found: str | None) -> None:
    assert last_told(text, THROUGHPUT_LINE) == found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("nan", "non-finite"),
        ("inf", "non-finite"),
        ("-inf", "non-finite"),
        ("0", "work-not-done"),
        ("-3", "work-not-done"),
        ("fast", "no-rate"),
    ],
)
def test_what_is_no_rate_is_a_typed_problem(tmp_path, text: str, kind: str) -> None:
    found = measured(RUN, tmp_path, output=f"throughput: {text}")
    assert found.problem is not None
    assert found.problem.kind == kind
    assert found.rates == {}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "no-rate"),
        (b"{}", "no-rate"),
        (b'{"benchmarks": []}', "work-not-done"),
        (suite(mean=0.0), "work-not-done"),
        (suite(mean=float("nan")), "non-finite"),
    ],
)
def test_a_suite_that_measured_nothing_is_a_problem(tmp_path, raw: bytes, kind: str) -> None:
    found = measured(RUN, tmp_path, suite_json=raw)
    assert found.problem is not None
    assert found.problem.kind == kind


def test_a_suites_median_and_fast_quantile_are_rates_too() -> None:
    rates = suites.read(suite(mean=0.5, median=0.4, q1=0.25)).rates
    assert rates["b.py::test_x"].median == 2.5
    assert rates["b.py::test_x"].fast == 4.0


def test_the_probes_mean_is_the_window_and_its_median_that_of_the_parts() -> None:
    rate = probe_rate(RUN, whole=True)
    assert rate.mean == 200.0
    assert rate.median == 200.0
    assert rate.fast is not None
    assert rate.fast > 210
    assert rate.work == 1100.0
    assert probe_rate(RUN, whole=False).work is None


def test_parts_are_joined_until_they_span_the_loaders_queue() -> None:
    """8 parts of 125 units; a queue of 4 workers x 2 batches x 32 units spans three of them."""
    queued = dataclasses.replace(RUN, effects=Effects(batch=32.0, workers=4, prefetch_factor=2))
    assert len(probe_rate(queued, whole=True).windows) == 2
    assert probe_rate(queued, whole=True).median is None


def test_limits_that_were_asked_for_hold_for_the_gates_runs(tmp_path) -> None:
    """A flag wins over the workload's entry; what was not asked for is the budget's."""
    engine = RecordedEngine(Formula())
    checkout = Checkout(top=tmp_path, cwd=tmp_path, revision=Revision())
    bench = Bench(
        engine=engine,
        builds={"base": (checkout,), "head": (checkout,)},
        scratch=tmp_path,
        device=lambda: None,
        limits=Limits(start_s=7.0),
    )
    own = dataclasses.replace(PROGRAM, limits=Limits(start_s=9.0, run_s=40.0))
    for program in (own, PROGRAM):
        bench.run(program, "head", MeasurePlan(), 100.0)
    trials = [each.trial for each in engine.asked]
    told = [(t.start_limit_s, t.hang_limit_s, t.total_limit_s) for t in trials]
    assert told == [(7.0, 80.0, 40.0), (7.0, 200.0, 100.0)]
