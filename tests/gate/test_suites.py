"""JSON of benchmark suites, written by the measured program and read as untrusted."""

import json
from typing import Any

import pytest

from advisor.gate.process import NoRateError, read_suite


def pytest_benchmark(**mean_s: float) -> bytes:
    found = [{"fullname": n, "stats": {"mean": s, "median": s}} for n, s in mean_s.items()]
    return json.dumps({"benchmarks": found, "machine_info": {}}).encode()


def named(*values: Any, **more: Any) -> bytes:
    return json.dumps([{"name": "a", "value": value, **more} for value in values]).encode()


def test_pytest_benchmark_is_calls_a_second() -> None:
    source, rates = read_suite(pytest_benchmark(a=0.5, b=0.01))
    assert source == "pytest-benchmark"
    assert {name: rate.mean for name, rate in rates.items()} == {"a": 2.0, "b": 100.0}


def test_any_tool_may_write_names_and_values() -> None:
    source, rates = read_suite(named(30, unit="frame"))
    assert source == "benchmark JSON"
    assert rates["a"].mean == 30
    assert rates["a"].unit == "frame"
    assert rates["a"].better == "higher"
    _, rates = read_suite(named(2.5, better="lower", extra="x"))
    assert rates["a"].mean == 2.5
    assert rates["a"].better == "lower"


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (b"{", "no-rate", "cannot be read"),
        (b"{}", "no-rate", "benchmarks"),
        (b"[" * 100_000, "no-rate", "cannot be read"),
        (b"[]", "work-not-done", "no benchmark"),
        (pytest_benchmark(), "work-not-done", "no benchmark"),
        (named(0), "work-not-done", "a: "),
        (named(-1), "work-not-done", "a: "),
        (named(float("nan")), "non-finite", "a: "),
        (b'[{"name": "a"}]', "no-rate", "0.value"),
        (named(1, better="up"), "no-rate", "better"),
        (named(1, 2), "no-rate", "twice"),
        (named(5e-324), "no-rate", "no rate between"),
        (named(1e300), "no-rate", "no rate between"),
        (named(1, unit="x" * 5000), "no-rate", "at most 1000 characters"),
        (pytest_benchmark(**{f"b{n}": 1.0 for n in range(3000)}), "no-rate", "at most 2000"),
    ],
)
def test_a_file_without_a_rate_says_why(raw, kind, words) -> None:
    with pytest.raises(NoRateError) as found:
        read_suite(raw)
    assert found.value.problem.kind == kind
    assert words in found.value.problem.evidence
