"""Several builds of each side: what one build's layout does is no slowdown."""

from __future__ import annotations

import itertools
import math

import pytest
from gate_engine import asked_for, in_process
from gate_examples import around, pair, program, run

from advisor import stats
from advisor.errors import UsageError
from advisor.gate import modes
from advisor.gate.records import Inputs
from advisor.gate.rule import Rule
from advisor.gate.verdict import decide
from benchmarks.gate_error_rates import rates
from benchmarks.gate_worlds import REBUILT


def built(base: list[float], head: list[float], n: int = 24):
    """A program whose builds take turns and have these rates, nearly."""
    wobble = around(1.0, n, 0.002)
    pairs = [
        pair(
            at + 1,
            run("base", {"train": base[at % len(base)] * wobble[at]}, build=at % len(base)),
            run("head", {"train": head[at % len(head)] * wobble[-at]}, build=at % len(head)),
        )
        for at in range(n)
    ]
    return program(pairs)


def test_one_build_that_lies_badly_does_not_make_it_red() -> None:
    """A third of head's builds is 40 % slower: its pairs alone would carry their mean over 5 %."""
    found = decide((built([100, 101, 99.5], [100.2, 60, 99]),), Inputs())
    assert found.verdict == "inconclusive"


def test_a_slowdown_of_every_build_is_red() -> None:
    found = decide((built([100, 101, 99.5], [90, 91, 89.5]),), Inputs())
    assert (found.verdict, found.leading.pairs) == ("regression", 12)


def test_a_build_that_is_as_slow_as_the_others_head_leaves_it_open_and_says_so() -> None:
    """Every pair is red by itself; but one build of base is slower than one of head's."""
    found = decide((built([100, 80, 90], [88, 70, 80]),), Inputs())
    assert found.verdict == "inconclusive"
    assert "builds of each arm, counted once each" in found.reason
    assert decide((built([100, 80, 90], [74, 60, 68]),), Inputs()).verdict == "regression"


def test_builds_that_lie_differently_are_no_modes_of_their_processes() -> None:
    """Two of head's builds are slow and one of base's: that is not "more often in a slow mode"."""
    found = decide((built([100, 100, 91], [86.3, 79, 79]),), Inputs())
    assert found.verdict == "regression", found.reason


def test_equal_builds_pass_as_early_as_without() -> None:
    found = decide((built([100, 100.5, 99.5], [100.1, 99.9, 100]),), Inputs())
    assert (found.verdict, found.leading.pairs) == ("pass", 5)


@pytest.mark.parametrize("world", REBUILT, ids=lambda world: world.name)
def test_in_the_world_in_which_one_build_is_red_for_nothing_several_are_not(world) -> None:
    """`python -m benchmarks.gate_error_rates` plays thousands: one of sixty wrong at most."""
    unchanged, dropped = (rates(world, drop, 60, Rule()) for drop in (0.0, 0.08))
    assert unchanged["regression"] <= 2
    assert dropped["pass"] <= 2


@pytest.mark.parametrize(("one", "other"), [(3, 3), (4, 4), (3, 5)])
def test_bounds_of_two_samples_are_exact(one: int, other: int) -> None:
    """Against all orders of the values, counted one by one."""
    whole = list(itertools.combinations(range(one + other), one))
    counts = [0] * (one * other + 1)
    for mine in whole:
        theirs = [n for n in range(one + other) if n not in mine]
        counts[sum(b < a for a in mine for b in theirs)] += 1
    assert stats.rank_sum_counts(one, other) == tuple(counts)


def test_two_builds_have_no_bounds_and_three_all_shifts() -> None:
    assert stats.two_sample_interval([1.0, 2.0], [0.0, 0.1], 0.05).low == -math.inf
    found = stats.two_sample_interval([1.0, 2.0, 3.0], [0.0, 0.1, 0.2], 0.05)
    assert (found.low, found.high) == (pytest.approx(0.8), pytest.approx(3.0))


# --- on real commits, worktrees and setups --------------------------------------------------

LAYOUT = 'n=$(wc -l < "{log}"); echo "$GPU_ADVISOR_ARM $PWD" >> "{log}"; echo "9$n" > rate'


@pytest.fixture
def quick(repo, tmp_path, monkeypatch):
    repo.commit({"bench.py": "1"})
    repo.commit({"bench.py": "2"})
    (repo.out / "log").touch()
    return in_process(repo.path, tmp_path, monkeypatch, modes)


def test_each_side_is_built_several_times_and_builds_take_turns(repo, quick) -> None:
    """Six checkouts, each with the setup's own result, and a warm-up of each."""
    setup = LAYOUT.format(log=repo.out / "log")
    record = quick(modes.ab, "--setup", setup, "--rebuilds", "3", "--threshold", "20%")
    lines = [text.split() for text in (repo.out / "log").read_text().splitlines()]
    assert [arm for arm, _ in lines] == ["base"] * 3 + ["head"] * 3
    assert len({folder for _, folder in lines}) == 6
    program = record.programs[0]
    assert record.verdict == "pass"
    assert [p.base.build for p in program.pairs] == [p.head.build for p in program.pairs]
    assert [p.base.build for p in program.pairs][:4] == [0, 1, 2, 0]
    for arm, built_as in (("base", (90, 91, 92)), ("head", (93, 94, 95))):
        runs = [getattr(p, arm) for p in program.pairs] + [
            run for run in program.warm_ups if run.arm == arm
        ]
        for run_ in runs:
            rate = run_.rates["command"].mean
            assert rate == pytest.approx(built_as[run_.build], abs=0.2)
    assert sorted((r.arm, r.build) for r in program.warm_ups) == [
        ("base", 0), ("base", 1), ("base", 2), ("head", 0), ("head", 1), ("head", 2),
    ]  # fmt: skip
    assert record.mde_pct is None
    assert len(repo.git("worktree", "list").splitlines()) == 1
    assert not (repo.path / "rate").exists()


def test_a_build_that_fails_is_named(repo, quick) -> None:
    """The second of head: the third is not begun."""
    fails = f'echo x >> "{repo.out}/log"; [ $(wc -l < "{repo.out}/log") != 5 ] && echo 90 > rate'
    record = quick(modes.ab, "--setup", fails, "--rebuilds", "3")
    assert record.verdict == "error"
    assert "head: --setup ended with exit code 1" in record.reason
    assert len((repo.out / "log").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--rebuilds", "2", "--setup", "true"), "two builds"),
        (("--rebuilds", "0"), "not known"),
        (("--rebuilds", "many"), "not known"),
        (("--rebuilds", "1_0"), "not known"),
        (("--rebuilds", "3"), "give --setup"),
        (("--rebuilds", "3", "--setup", "true", "--mode", "history"), "not of history"),
    ],
)
def test_rebuilds_that_prove_nothing_are_one_sentence(flags, said: str) -> None:
    with pytest.raises(UsageError) as found:
        asked_for(*flags)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_uncommitted_changes_cannot_be_built_anew(repo, quick) -> None:
    (repo.path / "bench.py").write_text("3")
    with pytest.raises(UsageError, match="there are uncommitted changes"):
        quick(modes.ab, "--rebuilds", "3", "--setup", "true")
