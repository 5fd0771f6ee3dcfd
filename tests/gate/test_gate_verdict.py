"""Raw values to verdicts: nothing passes vacuously, and each case has its own verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from gate_examples import around, failed, pair, program, program_of, rate, run, suite_of

from advisor.errors import GATE_EXIT_CODES
from advisor.gate.schema import Inputs, Limits
from advisor.gate.verdict import PRECEDENCE, decide, of_equal_code, settled

if TYPE_CHECKING:
    from advisor.gate.schema import GateRecord, RunEntry, Variant


def verdict(*programs, **inputs):
    return decide(programs, Inputs(**inputs))


@pytest.mark.parametrize(
    ("head", "inputs", "expected"),
    [
        (100, {}, "pass"),
        (92, {}, "regression"),
        (97, {}, "pass"),
        (97, {"threshold": 0.01}, "regression"),
        (60, {"threshold": 0.5}, "pass"),
    ],
)
def test_a_drop_beyond_the_threshold_is_a_regression(head, inputs, expected: str) -> None:
    found = verdict(program_of(around(100), around(head)), **inputs)
    assert found.verdict == expected
    assert found.workloads[0].slowdown_pct == pytest.approx(100 - head, abs=0.5)
    assert found.workloads[0].ci_low_pct <= 100 - head <= found.workloads[0].ci_high_pct


def test_the_place_in_the_pair_is_no_noise() -> None:
    """The second run of a pair is 10 % slower, whichever arm it is."""
    base = [rate_ * (1 if n % 2 else 0.9) for n, rate_ in enumerate(around(100), 1)]
    head = [rate_ * (0.9 if n % 2 else 1) for n, rate_ in enumerate(around(100), 1)]
    assert verdict(program_of(base, head)).workloads[0].noise_pct < 1


def test_nothing_compared_is_an_error() -> None:
    found = verdict()
    assert found.verdict == "error"
    assert "nothing was compared" in found.reason


@pytest.mark.parametrize(
    ("base", "head", "declared", "expected"),
    [
        ("ab", "a", "", {"b": "error", "a": "pass"}),
        ("ab", "a", "b", {"a": "pass"}),
        ("ab", "bc", "", {"a": "error", "b": "pass", "c": "no-baseline"}),
        ("a", "ab", "", {"a": "pass", "b": "no-baseline"}),
    ],
    ids=["missing", "declared", "renamed", "new"],
)
def test_benchmarks_that_come_and_go_have_verdicts_of_their_own(
    base: str, head: str, declared: str, expected: dict[str, str]
) -> None:
    """One that is missing is named with the flag that declares it removed."""
    suite = suite_of(dict.fromkeys(base, 10), dict.fromkeys(head, 10))
    found = verdict(suite, allow_removed=list(declared))
    worst = next(each for each in PRECEDENCE if each in expected.values())
    assert {w.name.removeprefix("suite: "): w.verdict for w in found.workloads} == expected
    assert (found.verdict, found.workloads[0].verdict) == (worst, worst)
    assert ("--allow-removed" in found.reason) is (worst == "error")
    assert found.notes == (["suite: b was removed, as declared"] if declared else [])


def test_a_benchmark_that_runs_only_sometimes_is_an_error() -> None:
    pairs = [
        pair(n, run("base", {"a": 10.0, "b": 5.0}), run("head", {"a": 10.0, **more}))
        for n, more in enumerate([{"b": 5.0}, {}, {"b": 5.0}], 1)
    ]
    found = verdict(program(pairs, "suite"))
    assert found.verdict == "error"
    assert "2 of 3 runs of head" in found.reason


@pytest.mark.parametrize("kind", ["crash-step", "gpu-oom", "non-finite", "work-not-done"])
def test_a_head_that_fails_is_an_error_and_never_a_regression(kind: str) -> None:
    entry = program([pair(1, run("base", {"train": 10.0}), failed("head", kind))])
    found = verdict(entry)
    assert found.verdict == "error"
    assert kind in found.reason
    assert GATE_EXIT_CODES[found.verdict] == 2


def test_a_base_that_fails_alone_is_no_baseline() -> None:
    """Where both arms fail, or head in its warm-up, it is an error."""
    broken = failed("base", "crash-import")
    alone = program([pair(1, broken, run("head", {"train": 10.0}))])
    assert verdict(alone).verdict == "no-baseline"
    both = program([pair(1, broken, failed("head", "hang"))])
    assert verdict(both).verdict == "error"
    warm_up = program([], warm_ups=[failed("head", "crash-start")])
    assert verdict(warm_up).verdict == "error"


def verdict_of(base: float, head: float, **facts: Any) -> GateRecord:
    """The verdict on twelve pairs of these rates, nearly; `facts` of both, or by arm."""

    def one(arm: Variant, value: float) -> RunEntry:
        own = {name: fact[arm] if isinstance(fact, dict) else fact for name, fact in facts.items()}
        return run(arm).model_copy(update={"rates": {"train": rate(value, **own)}})

    pairs = [
        pair(n, one("base", base + n / 1000), one("head", head + n / 1000)) for n in range(1, 13)
    ]
    return verdict(program(pairs))


@pytest.mark.parametrize(
    ("base", "head", "facts", "expected", "words"),
    [
        (10, 20, {"work": {"base": 1000, "head": 500}}, "error", "work not done"),
        (10, 20, {"work": {"base": 1000, "head": 989}}, "error", "work not done"),
        (10, 20, {"work": {"base": 1000, "head": 991}}, "pass", "ruled out"),
        (10, 5, {"work": {"base": 100, "head": 50}}, "regression", "slower"),  # in a fixed time
        (10, 12, {"better": "lower"}, "regression", "slower"),
        (10, 8, {"better": "lower"}, "pass", "faster by 20.0 %"),
        (
            10,
            10,
            {"unit": {"base": "sample", "head": "batch"}},
            "no-baseline",
            "base was measured in",
        ),
    ],
)
def test_work_and_kinds_of_rates(base, head, facts, expected: str, words: str) -> None:
    """One percent less work is an error, although it is faster."""
    found = verdict_of(base, head, **facts)
    assert (found.verdict, words in found.reason) == (expected, True), found.reason


def test_rates_of_different_sources_are_not_compared() -> None:
    pairs = [
        pair(n, run("base", {"train": 10.0}, source="whole-run time"), run("head", {"train": 10.0}))
        for n in range(1, 13)
    ]
    found = verdict(program(pairs))
    assert found.verdict == "no-baseline"
    assert "whole-run time" in found.reason


def test_discarded_pairs_count_as_a_whole_or_not_at_all() -> None:
    """Two slow pairs marked as throttled are not looked at; with them it would not pass."""
    good = program_of(around(100, 8), [*around(100, 6), 60.0, 60.0]).pairs
    marked = [
        p.model_copy(update={"discarded": "power brake in 9% of the busy samples of head"})
        if p.number > 6
        else p
        for p in good
    ]
    found = verdict(program(marked))
    assert (found.verdict, found.workloads[0].pairs) == ("pass", 5)
    first = [
        p.model_copy(update={"discarded": marked[-1].discarded if p.number < 3 else None})
        for p in program_of([100.0] * 7, [60.0, 60.0, *around(100, 5)]).pairs
    ]
    assert verdict(program(first)).verdict == "pass"
    assert verdict(program(good)).workloads[0].pairs == 5


def test_too_many_discarded_pairs_make_it_invalid() -> None:
    pairs = [
        p.model_copy(update={"discarded": "2 foreign process(es) on the GPU during base"})
        if p.number > 5
        else p
        for p in program_of(around(100, 8), around(50, 8)).pairs
    ]
    found = verdict(program(pairs))
    assert found.verdict == "invalid"
    assert "foreign" in found.reason
    assert GATE_EXIT_CODES[found.verdict] == 4


def test_noise_beyond_the_threshold_is_inconclusive_and_says_what_was_provable() -> None:
    head = [100 * math.exp(0.2 * math.sin(9 * i)) for i in range(24)]
    found = verdict(program_of(around(100, 24), head))
    assert found.verdict == "inconclusive"
    assert "undecided after 24 pairs: the slowdown lies between" in found.reason


def test_the_worst_workload_leads_and_the_order_is_by_slowdown() -> None:
    found = verdict(
        program_of(around(100), around(100), "fine"),
        program_of(around(100), around(80), "slow"),
        program_of(around(100), around(60), "slower"),
    )
    assert [w.name for w in found.workloads] == ["slower", "slow", "fine"]
    assert found.verdict == "regression"
    assert found.workloads[0].name == "slower"


def test_a_proven_regression_is_not_hidden_by_another_workload_that_broke() -> None:
    slow = program_of(around(100), around(60), "slow")
    broken = program([], "broken", error="head: --setup ended with exit code 1")
    found = verdict(slow, broken)
    assert found.verdict == "regression"
    assert {w.verdict for w in found.workloads} == {"regression", "error"}


def test_an_unexpected_gain_passes_and_is_remarked_on() -> None:
    found = verdict(program_of(around(100), around(200)))
    assert found.verdict == "pass"
    assert any("work" in note for note in found.workloads[0].notes)


def test_pairs_of_equal_code_tell_noise_and_the_smallest_threshold() -> None:
    found = of_equal_code([program_of(around(100), around(100, spread=0.01))], Inputs())
    assert found.verdict == "pass"
    assert found.workloads[0].noise_pct == pytest.approx(0.3, abs=0.2)
    assert found.workloads[0].notes == ["smallest threshold that equal code passes: --threshold 1%"]
    faster = of_equal_code([program_of(around(100), around(103))], Inputs())
    assert faster.workloads[0].notes == [
        "smallest threshold that equal code passes: --threshold 3%"
    ]
    red = of_equal_code([program_of(around(100), around(80))], Inputs())
    assert (red.verdict, red.workloads[0].verdict) == ("invalid", "regression")


def test_a_figure_that_is_bounded_and_not_measured_has_no_baseline() -> None:
    limits = {"train": Limits(figures={"energy": 0.1})}
    found = verdict(program_of(around(100), around(100), known=["train"]), limits=limits)
    assert {(w.figure, w.verdict) for w in found.workloads} == {
        ("throughput", "pass"), ("energy", "no-baseline"),
    }  # fmt: skip


def test_a_benchmark_named_like_a_figure_is_not_covered_by_its_bound() -> None:
    """A bound on memory says nothing of a benchmark called memory."""
    base, head = (
        [
            run(arm, {"memory": value * (1 + n / 10_000)}, figures={"memory": peak})
            for n in range(12)
            if (peak := rate(1.0 + n / 10_000, better="lower"))
        ]
        for arm, value in (("base", 10.0), ("head", 5.0))
    )
    pairs = [pair(n, b, h) for n, (b, h) in enumerate(zip(base, head, strict=True), 1)]
    limits = {"suite": Limits(figures={"memory": 0.1})}
    found = verdict(program(pairs, "suite"), limits=limits)
    assert found.verdict == "regression"
    assert {(w.benchmark, w.figure, w.verdict) for w in found.workloads} == {
        ("memory", "throughput", "regression"),
        (None, "memory", "pass"),
    }


def test_a_program_does_not_claim_the_workload_of_another() -> None:
    """`a` with a benchmark `b`, and a program called `a: b`."""
    suite = suite_of({"b": 10}, {"b": 10}, n=5).model_copy(update={"name": "a"})
    other = program_of(around(100, 3), around(100, 3), "a: b")
    found = verdict(suite, other)
    assert settled(found, suite)
    assert not settled(found, other)


def test_thresholds_of_single_benchmarks() -> None:
    entry = suite_of({"a": 10, "b": 10}, {"a": 9, "b": 9})
    limits = {"suite": Limits(benchmarks={"a": 0.2, "gone": 0.1})}
    found = verdict(entry, limits=limits)
    assert {(w.benchmark, w.verdict, w.threshold) for w in found.workloads} == {
        ("a", "pass", 0.2), ("b", "regression", 0.05),
    }  # fmt: skip
    assert any("'gone'" in note for note in found.notes)
