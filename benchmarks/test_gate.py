"""Cost of a verdict, which is computed after every pair.

python -m pytest benchmarks/test_gate.py --benchmark-enable
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from advisor import stats
from advisor.gate.report import markdown
from advisor.gate.runner import decided
from advisor.gate.schema import HostEntry, Inputs, PairEntry, ProgramEntry, Rate, RunEntry
from advisor.gate.sequential_test import Rule, judge

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from advisor.gate.schema import Variant

RULE = Rule()


def differences(pairs: int = 24) -> list[float]:
    rng = random.Random(1)
    return [rng.gauss(RULE.tau, 0.02) for _ in range(pairs)]


def suite(benchmarks: int = 10, pairs: int = 24) -> ProgramEntry:
    """A suite on the edge of the threshold, so that every look is taken."""
    rng = random.Random(2)

    def run(arm: Variant) -> RunEntry:
        rates = {f"b{n}": Rate(mean=100 * (1 + rng.gauss(0, 0.02))) for n in range(benchmarks)}
        return RunEntry(arm=arm, started=0.0, wall_s=1.0, source="pytest-benchmark", rates=rates)

    entries = [
        PairEntry(number=n + 1, order="base first", base=run("base"), head=run("head"))
        for n in range(pairs)
    ]
    return ProgramEntry(name="suite", command="pytest", definition="d", pairs=entries)


def test_exact_bounds_of_24_pairs(benchmark: BenchmarkFixture) -> None:
    values = differences()
    assert benchmark(lambda: stats.walsh_interval(values, RULE.level(24, "pass"))).n == 24


def test_verdict_on_ten_workloads(benchmark: BenchmarkFixture) -> None:
    family = {str(n): differences() for n in range(10)}
    assert len(benchmark(lambda: judge(family, RULE))) == 10


def test_record_and_report_of_a_suite(benchmark: BenchmarkFixture) -> None:
    program = suite()
    text = benchmark(lambda: markdown(decided([program], Inputs(), HostEntry(), "ab")))
    assert "suite: b3" in text
