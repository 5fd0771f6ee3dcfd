"""Suites of other tools as inputs: what they write becomes a rate for each benchmark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from advisor.gate.suites import NoRateError, read

if TYPE_CHECKING:
    from pathlib import Path

GOOGLE_CONTEXT = {
    "date": "2026-11-20T10:11:12+00:00",
    "host_name": "runner",
    "executable": "./bench",
    "num_cpus": 8,
    "mhz_per_cpu": 3000,
    "library_build_type": "release",
}


def google_run(name: str, time: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "family_index": 0, "per_family_instance_index": 0, "run_name": name,
        "run_type": "iteration", "repetitions": 1, "repetition_index": 0, "threads": 1,
        "iterations": 1000, "real_time": time, "cpu_time": time, "time_unit": "ns", **more,
    }  # fmt: skip


def google(*runs: dict[str, Any]) -> bytes:
    return json.dumps({"context": GOOGLE_CONTEXT, "benchmarks": list(runs)}).encode()


ASV_COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a"]


def asv(**results: Any) -> bytes:
    told = {
        "commit_hash": "a" * 40, "env_name": "virtualenv-py3.11", "date": 1700000000000,
        "params": {"machine": "runner"}, "python": "3.11", "requirements": {}, "env_vars": {},
        "result_columns": ASV_COLUMNS,
        "results": {name.replace("__", "."): row for name, row in results.items()},
        "durations": {}, "version": 2,
    }  # fmt: skip
    return json.dumps(told).encode()


def rates(raw: bytes) -> dict[str, float]:
    return {name: pytest.approx(rate.mean) for name, rate in read(raw).rates.items()}


def test_google_benchmark_gives_iterations_a_second_in_every_unit() -> None:
    found = google(
        google_run("BM_A/8", 500.0),
        google_run("BM_B", 2.0, time_unit="us"),
        google_run("BM_C", 4.0, time_unit="ms"),
        google_run("BM_D", 2.0, time_unit="s"),
    )
    assert rates(found) == {"BM_A/8": 2e6, "BM_B": 5e5, "BM_C": 250.0, "BM_D": 0.5}
    assert read(found).source == "Google Benchmark"
    assert read(found).started == 1795169472


def test_repetitions_of_one_process_are_one_sample_and_aggregates_no_benchmarks() -> None:
    """A median or a deviation beside the runs would be compared as a benchmark of its own."""
    runs = [google_run("BM_A", t, repetitions=2, repetition_index=i) for i, t in enumerate((1, 3))]
    aggregates = [
        google_run(f"BM_A_{kind}", 9.0, run_name="BM_A", run_type="aggregate", aggregate_name=kind)
        for kind in ("mean", "median", "stddev", "cv", "BigO")
    ]
    assert rates(google(*runs, *aggregates)) == {"BM_A": 5e8}
    assert rates(google(*aggregates)) == {"BM_A": pytest.approx(1e9 / 9)}


def test_a_google_benchmark_that_failed_is_named_and_a_skipped_one_left_out() -> None:
    failed = google_run("BM_A", 0.0, error_occurred=True, error_message="no device")
    with pytest.raises(NoRateError, match="BM_A failed: no device"):
        read(google(google_run("BM_B", 1.0), failed))
    skipped = google_run("BM_A", 0.0, skipped=True, skip_message="not here")
    assert set(rates(google(google_run("BM_B", 1.0), skipped))) == {"BM_B"}


def test_asv_gives_calls_a_second_of_every_combination_of_parameters() -> None:
    """The last parameter varies first; functions that measure no time are none of ours."""
    found = asv(
        suite__Case__time_one=[[0.5], [], "v", 1, 2, [0.4]],
        suite__Case__timeraw_two=[[0.1, 0.2, 0.4, 0.8], [["1", "2"], ["'a'", "'b'"]], "v", 1, 2],
        suite__Case__peakmem_three=[[1e8], [], "v", 1, 2],
        suite__Case__track_four=[[3.0], [], "v", 1, 2],
    )
    assert rates(found) == {
        "suite.Case.time_one": 2.0,
        "suite.Case.timeraw_two(1, 'a')": 10.0,
        "suite.Case.timeraw_two(1, 'b')": 5.0,
        "suite.Case.timeraw_two(2, 'a')": 2.5,
        "suite.Case.timeraw_two(2, 'b')": 1.25,
    }
    assert (read(found).source, read(found).started) == ("asv", 1700000000)


def test_an_asv_benchmark_that_failed_is_named_and_a_skipped_one_left_out() -> None:
    with pytest.raises(NoRateError, match=r"b.time_x\(2\) failed"):
        read(asv(b__time_x=[[0.5, None], [["1", "2"]]]))
    with pytest.raises(NoRateError, match=r"b.time_x failed"):
        read(asv(b__time_x=[None, []]))
    assert set(rates(asv(b__time_x=[[0.5, float("nan")], [["1", "2"]]]))) == {"b.time_x(1)"}


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"null", b"[]", b"{}", b"[" * 100_000, b'{"benchmarks": 3}', b'{"context": 3}',
        b'{"result_columns": ["result"], "results": 3}', google(google_run("A", 1, time_unit="h")),
        b'{"context": {}, "benchmarks": [{"name": "A", "real_time": "soon"}]}', google(),
        google(google_run("A", float("inf"))), google(google_run("A", -1.0)),
        asv(b__time_x=[["soon"], []]), asv(b__time_x=[[True], []]), asv(),
        asv(b__time_x=[[0.0], []]), b'{"benchmarks": [{"fullname": "a", "stats": {"mean": {}}}]}',
    ],
)  # fmt: skip
def test_what_holds_no_time_is_one_sentence(raw: bytes) -> None:
    """Untrusted text: never a traceback, never a rate."""
    with pytest.raises(NoRateError) as found:
        read(raw)
    assert found.value.problem.evidence
    assert "\n" not in found.value.problem.evidence


WRITES = """
import os
told = {raw!r}
for time in (111111.0, 222222.0):
    told = told.replace(repr(time), repr(time * (1 + (os.getpid() % 7) / 5000)))
open(os.environ["GPU_ADVISOR_BENCHMARK_JSON"], "w").write(told)
"""
SUITE = asv(b__time_fast=[[111111.0], []], b__time_slow=[[222222.0], []])


def test_a_suite_that_writes_where_it_is_told_is_measured(repo) -> None:
    """`$GPU_ADVISOR_BENCHMARK_JSON` says where; each benchmark is a workload of its own."""
    repo.commit({"bench.py": WRITES.format(raw=SUITE.decode())})
    found = repo.gate("--command", "python bench.py", "--mode", "history", "--history", "h.json")
    rates = {w.name.rpartition("_")[2]: w.head_units_per_s for w in found.record.workloads}
    assert rates["fast"] / rates["slow"] == pytest.approx(2, abs=0.01), found.stderr
    assert {w.source for w in found.record.workloads} == {"asv"}


def test_saved_files_of_google_benchmark_are_replayed(repo, tmp_path: Path) -> None:
    repo.commit({"x": "x"})
    files: dict[str, list[str]] = {"base": [], "head": []}
    for arm, time in (("base", 100.0), ("head", 130.0)):
        for number in range(12):
            path = tmp_path / f"{arm}-{number}.json"
            of_its_own = time + number % 5 / 10 + number / 1000
            path.write_bytes(google(google_run("BM_A", of_its_own)))
            files[arm].append(str(path))
    flags = ("--base-runs", *files["base"], "--head-runs", *files["head"])
    found = repo.gate("--mode", "replay", *flags)
    assert (found.code, found.record.verdict) == (1, "regression"), found.stderr
