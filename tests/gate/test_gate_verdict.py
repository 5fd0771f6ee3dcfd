"""Raw values to verdicts: nothing passes vacuously, and each case has its own verdict."""

import math
import random
from typing import Any

import pytest
from gate_examples import around, discarded, failed, program, program_of, record_of, run, suite_of

from advisor.gate import report
from advisor.gate.schema import Arm, Inputs, ProgramEntry, Rate
from advisor.gate.verdict import PRECEDENCE, decide, settled
from advisor.settings import GateLimits


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
def test_a_drop_beyond_the_threshold_is_a_regression(head, inputs, expected) -> None:
    found = record_of(program_of(around(100), around(head)), **inputs)
    assert found.verdict == expected
    assert found.slowdown_pct == pytest.approx(100 - head, abs=0.5)
    assert found.ci_low_pct <= 100 - head <= found.ci_high_pct


def test_the_place_in_the_pair_is_no_noise() -> None:
    """The second run of a pair is 10 % slower, whichever arm it is."""
    base = [rate * (1 if n % 2 else 0.9) for n, rate in enumerate(around(100), 1)]
    head = [rate * (0.9 if n % 2 else 1) for n, rate in enumerate(around(100), 1)]
    assert record_of(program_of(base, head)).workloads[0].noise_pct < 1


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
    base, head, declared, expected
) -> None:
    """One that is missing is named with the flag that declares it removed."""
    suite = suite_of(dict.fromkeys(base, 10), dict.fromkeys(head, 10))
    found = record_of(suite, allow_removed=list(declared))
    worst = next(each for each in PRECEDENCE if each in expected.values())
    assert {w.name.removeprefix("suite: "): w.verdict for w in found.workloads} == expected
    assert found.verdict == worst
    assert found.workloads[0].verdict == worst
    assert ("--allow-removed" in found.reason) is (worst == "error")
    assert found.notes == (["suite: b was removed, as declared"] if declared else [])


GOOD, BROKEN = run("head", {"train": 10.0}), failed("base", "crash-import")
SOMETIMES = [
    (run("base", {"a": 10.0, "b": 5.0}), run("head", {"a": 10.0, **more}))
    for more in ({"b": 5.0}, {}, {"b": 5.0})
]
CASES: dict[str, tuple[list[ProgramEntry], str, str]] = {
    "nothing": ([], "error", "nothing was compared"),
    "head alone": (
        [program([(run("base", {"train": 10.0}), failed("head", "gpu-oom"))])], "error", "gpu-oom",
    ),
    "base alone": ([program([(BROKEN, GOOD)])], "no-baseline", "base failed (crash-import)"),
    "known to base": ([program([(BROKEN, GOOD)], known=["train"])], "error", "not new"),
    "both": ([program([(BROKEN, failed("head", "hang"))])], "error", "head failed (hang)"),
    "head in its warm-up": (
        [program([], warm_ups=[failed("head", "crash-start")])], "error", "crash-start",
    ),
    "only sometimes": ([program(SOMETIMES, "suite")], "error", "2 of 3 runs of head"),
    "sources": (
        [program([(run("base", {"train": 10.0}, source="whole-run time"), GOOD)] * 12)],
        "no-baseline", "whole-run time",
    ),
    "a source that a long line hides": (
        [program([(run("base", {"train": 10.0}, source="whole-run time", cut_lines=2), GOOD)] * 12,
                 known=["train"])],
        "error",
        (
            "(lines too long to be searched whole: 2 of base). 'train' is not new, so nothing "
            "would be compared any more: let head measure it as base does"
        ),
    ),
    "noise": (
        [program_of(around(100, 24), [100 * math.exp(0.2 * math.sin(9 * i)) for i in range(24)])],
        "inconclusive", "undecided after 24 pairs: the slowdown lies between",
    ),
    "time alone": (
        [program_of(around(100, 9), [100 * math.exp(0.2 * math.sin(9 * i)) for i in range(9)])],
        "inconclusive", "undecided after 9 pairs",
    ),
    "slower, too early": (
        [program_of(around(100, 9), around(91, 9))],
        "inconclusive", "and 5 % is allowed. A regression is told from 12 pairs on",
    ),
    "too many discarded": (
        [discarded(program_of(around(100, 8), around(50, 8)), "2 foreign processes", 6, 7, 8)],
        "invalid", "foreign",
    ),
    "beside one that broke": (
        [program([], "broken", error="it broke"), program_of(around(100), around(60), "slow")],
        "regression", "slow: proven slower",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("programs", "expected", "words"), CASES.values(), ids=CASES)
def test_each_case_has_its_own_verdict(programs, expected, words) -> None:
    """A failure is never a regression, and hides none."""
    found = record_of(*programs)
    assert found.verdict == expected
    assert words in found.reason


@pytest.mark.parametrize(
    ("base", "head", "facts", "expected", "words"),
    [
        (10, 20, {"work": {"base": 1000, "head": 500}}, "error", "work not done"),
        (10, 20, {"work": {"base": 1000, "head": 989}}, "error", "work not done"),
        (10, 20, {"work": {"base": 1000, "head": 991}}, "pass", "ruled out"),
        (10, 5, {"work": {"base": 100, "head": 50}}, "regression", "slower"),  # in a fixed time
        (10, 12, {"better": "lower"}, "regression", "slower"),
        (10, 8, {"better": "lower"}, "pass", "faster by 20.0 %"),
        (10, 10, {"unit": {"base": "sample", "head": "batch"}}, "no-baseline", "was measured in"),
    ],
)
def test_work_and_kinds_of_rates(base, head, facts, expected, words) -> None:
    """One percent less work is an error, although it is faster."""

    def one(arm: Arm, value: float) -> Any:
        own = {name: fact[arm] if isinstance(fact, dict) else fact for name, fact in facts.items()}
        return run(arm).model_copy(update={"rates": {"train": Rate(mean=value, **own)}})

    pairs = [(one("base", base + n / 1000), one("head", head + n / 1000)) for n in range(12)]
    found = record_of(program(pairs))
    assert found.verdict == expected, found.reason
    assert words in found.reason, found.reason


@pytest.mark.parametrize("shift", [0.0, 2.0, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0])
@pytest.mark.parametrize("pairs", [5, 9, 12, 17, 24])
@pytest.mark.parametrize("noise", [0.01, 0.04, 0.1])
def test_the_interval_told_is_the_one_that_decided(shift, pairs, noise) -> None:
    """Below the threshold where a slowdown is ruled out, above it where proven, else around it."""
    rng = random.Random(f"{shift} {pairs} {noise}")
    heads = [(100 - shift) * math.exp(rng.gauss(0, noise)) for _ in range(pairs)]
    (found,) = record_of(program_of(around(100, pairs), heads)).workloads
    if found.verdict == "pass":
        assert found.ci_high_pct < 5
    elif found.verdict == "regression":
        assert found.ci_low_pct > 5
    elif "alike" not in found.reason:
        assert found.ci_low_pct <= 5 <= found.ci_high_pct
        assert f"between {found.ci_low_pct:.1f} % and {found.ci_high_pct:.1f} %" in found.reason


def test_more_time_is_advised_only_where_it_could_decide() -> None:
    noisy = [100 * math.exp(0.2 * math.sin(9 * i)) for i in range(24)]
    for pairs, advised in ((12, True), (24, False)):
        found = record_of(program_of(around(100, pairs), noisy[:pairs]))
        assert found.verdict == "inconclusive"
        assert ("--max-minutes" in report.lines(found)) is advised


def test_discarded_pairs_count_as_a_whole_or_not_at_all() -> None:
    """Two slow pairs marked as throttled are not looked at; with them it would not pass."""
    last = program_of(around(100, 8), [*around(100, 6), 60.0, 60.0])
    first = program_of([100.0] * 7, [60.0, 60.0, *around(100, 5)])
    for entry in (
        last,
        discarded(last, "power brake", 7, 8),
        discarded(first, "power brake", 1, 2),
    ):
        found = record_of(entry)
        assert found.verdict == "pass"
        assert found.pairs == 5


def test_the_worst_workload_leads_and_the_order_is_by_slowdown() -> None:
    heads = {"fine": 100, "slow": 80, "slower": 60}
    found = record_of(*(program_of(around(100), around(rate), n) for n, rate in heads.items()))
    assert [w.name for w in found.workloads] == ["slower", "slow", "fine"]
    assert found.verdict == "regression"


def test_an_unexpected_gain_passes_and_is_remarked_on() -> None:
    found = record_of(program_of(around(100), around(200)))
    assert found.verdict == "pass"
    assert any("work" in note for note in found.workloads[0].notes)


@pytest.mark.parametrize(
    ("head", "smallest", "verdict"),
    [(around(100, spread=0.01), 1, "pass"), (around(103), 3, "pass"), (around(80), 21, "invalid")],
)
def test_pairs_of_equal_code_tell_noise_and_the_smallest_threshold(head, smallest, verdict) -> None:
    """Which they pass whichever arm was head; a regression says that the runner is no good."""
    found = decide([program_of(around(100), head)], Inputs(), "noise")
    (workload,) = found.workloads
    assert found.verdict == verdict
    assert workload.verdict == ("regression" if verdict == "invalid" else "pass")
    assert 0.05 < workload.noise_pct < 0.5
    assert workload.notes[-1] == (
        f"smallest threshold that equal code passes: --threshold {smallest}%"
    )


def test_a_figure_that_is_bounded_and_not_measured_has_no_baseline() -> None:
    limits = {"train": GateLimits(energy=0.1)}
    found = record_of(program_of(around(100), around(100), known=["train"]), limits=limits)
    assert {(w.figure, w.verdict) for w in found.workloads} == {
        ("throughput", "pass"), ("energy", "no-baseline"),
    }  # fmt: skip


def test_a_benchmark_named_like_a_figure_is_not_covered_by_its_bound() -> None:
    """A bound on memory says nothing of a benchmark called memory."""
    pairs = []
    for wobble in (1 + n / 10_000 for n in range(12)):
        figures = {"memory": Rate(mean=wobble, better="lower")}
        rates = {"base": 10.0 * wobble, "head": 5.0 * wobble}
        base, head = (run(arm, {"memory": rates[arm]}, figures=figures) for arm in rates)
        pairs.append((base, head))
    found = record_of(program(pairs, "suite"), limits={"suite": GateLimits(memory=0.1)})
    assert found.verdict == "regression"
    assert {(w.benchmark, w.figure, w.verdict) for w in found.workloads} == {
        ("memory", "throughput", "regression"),
        (None, "memory", "pass"),
    }


def test_a_program_does_not_claim_the_workload_of_another() -> None:
    """`a` with a benchmark `b`, and a program called `a: b`."""
    suite = suite_of({"b": 10}, {"b": 10}, n=5).model_copy(update={"name": "a"})
    other = program_of(around(100, 3), around(100, 3), "a: b")
    found = record_of(suite, other)
    assert settled(found, suite)
    assert not settled(found, other)


def test_thresholds_of_single_benchmarks() -> None:
    entry = suite_of({"a": 10, "b": 10}, {"a": 9, "b": 9})
    limits = {"suite": GateLimits(benchmarks={"a": 0.2, "gone": 0.1})}
    found = record_of(entry, limits=limits)
    assert {(w.benchmark, w.verdict, w.threshold) for w in found.workloads} == {
        ("a", "pass", 0.2), ("b", "regression", 0.05),
    }  # fmt: skip
    assert any("'gone'" in note for note in found.notes)


def along(base: float, head: float, slope: float) -> ProgramEntry:
    """Pairs of windows of three seconds over items whose rate grows by `slope` with each."""
    made = []
    for b, h in zip(around(base), around(head), strict=True):
        rates = [Rate(mean=r, unit="sample", slope=slope, middle=1.5 * r) for r in (b, h)]
        runs = zip(("base", "head"), rates, strict=True)
        made.append(tuple(run(arm, rates={}).model_copy(update={"rates": {"train": r}})
                          for arm, r in runs))  # fmt: skip
    return program(made)


@pytest.mark.parametrize(
    ("head", "slope", "expected"),
    [
        (94, 0.0, "regression"),
        (94, 0.002, "inconclusive"),
        (97, -0.01, "inconclusive"),
        (85, 0.002, "regression"),
        (100, 0.01, "pass"),
    ],
)
def test_items_of_unequal_cost_decide_nothing(head, slope, expected) -> None:
    """Which of data in order of cost an arm came to is a part of its rate, and no merit."""
    found = record_of(along(100, head, slope))
    assert found.verdict == expected
    assert ("unequal cost" in found.reason) is (expected == "inconclusive")
    assert bool(found.workloads[0].notes) is (expected == "regression" and slope > 0)
