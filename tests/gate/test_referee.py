"""The referee as a user calls it: is the working tree worth keeping, against a commit?

Programs say their rate at once, so that calls of many processes stay short; what the probe sees
of the work is held in `test_referee_work.py`.
"""

import json
import math
import shlex
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from advisor.gate.referee import later_end
from advisor.gate.sequential_test import (
    DROPPED_BY_CHANCE,
    KEPT_BY_CHANCE,
    RULED,
    RULING_LOOKS,
    keep_or_drop,
)
from advisor.model import Run
from tests.gate.repos import ROOT, STEADY, Repo
from tests.support.simulator.bounds import a_run

SCHEMA = json.loads((ROOT / "docs" / "referee.schema.json").read_text())
COMMAND = ("--", "python", "bench.py")
FAILS = "raise SystemExit(3)"


def steady(rate: float) -> str:
    return STEADY.format(rate=rate)


def judged(repo: Repo, *flags: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `gpu-advisor compare --base-ref HEAD` here."""
    words = ("compare", "--base-ref", "HEAD", "--json", *flags, *COMMAND)
    done = repo.gpu_advisor.call(*words, cwd=repo.path, env=repo.environment())
    record = json.loads(done.stdout)
    jsonschema.validate(record, SCHEMA)
    assert ("so 5 to 48 pairs take" in done.stderr) or record["processes"] < 2, done.stderr
    return done.returncode, record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "ruling", "cause", "pairs"),
    [
        (steady(110), "keep", "gain-proven", 7),
        (f"{steady(100)}# a comment", "drop", "gain-ruled-out", 5),
        (steady(101), "drop", "gain-ruled-out", 5),
        (steady(50), "drop", "evidently-slower", 3),
        (FAILS, "drop", "head-failed", 0),
        ("print('no rate')", "drop", "other-unit", 1),
    ],
)
def test_uncommitted_changes_are_kept_or_dropped_after_the_fewest_pairs(
    repo, change, ruling, cause, pairs
) -> None:
    repo.of(steady(100))
    (repo.path / "bench.py").write_text(change)
    code, record = judged(repo)
    assert record["verdict"] == ruling, record["reason"]
    assert record["cause"] == cause, record["reason"]
    assert code == {"keep": 0, "drop": 1}[ruling]
    assert len(record["pairs"]) == pairs
    assert repo.git("worktree", "list").count("\n") == 0, "no checkout is left"


@pytest.mark.slow
def test_nothing_is_run_where_no_file_differs(repo) -> None:
    code, record = judged(repo.of(steady(100)))
    assert code == 1
    assert record["cause"] == "no-change"
    assert record["processes"] == 0


@pytest.mark.slow
def test_what_the_budget_left_undecided_says_which_call_may_decide_it(repo) -> None:
    repo.of(steady(100))
    (repo.path / "bench.py").write_text(steady(110))
    code, record = judged(repo, "--budget", "1s", "--keep-if", "3%")
    assert code == 3
    assert record["verdict"] == "undecided"
    words = shlex.split(record["next"] or "")
    assert words[:6] == ["gpu-advisor", "compare", "--base-ref", "HEAD", "--keep-if", "3%"]
    assert words[-3:] == list(COMMAND)


@pytest.mark.parametrize("flags", [("a.yaml", "b.yaml"), ("--ranks", "1,2")])
def test_a_commit_is_not_compared_with_configs_or_ranks(repo, flags) -> None:
    repo.of(steady(100))
    words = ("compare", "--base-ref", "HEAD", *flags, *COMMAND)
    done = repo.gpu_advisor.call(*words, cwd=repo.path, env=repo.environment())
    assert done.returncode == 2
    assert "without configs" in done.stderr


WANTED = math.log1p(0.02)


@pytest.mark.parametrize(
    ("gains", "ruling", "pairs"),
    [
        ([0.05, 0.06, 0.04, 0.05, 0.07, 0.05, 0.06], "keep", 7),
        ([0.05, 0.06, 0.04, 0.05, 0.07], "undecided", 5),  # 1 chance in 32: too many edits pass it
        ([0.0, 0.001, -0.002, 0.001, 0.0], "drop", 5),
        ([0.01] * 5, "drop", 5),  # proven, and less than is wanted
        ([-0.7, -0.71, -0.69], "drop", 3),
        ([-0.7, -0.1, -0.69], "undecided", 3),
        ([0.05, 0.06, 0.04, -0.01, 0.07], "undecided", 5),
        ([0.05, 0.06, 0.04, 0.05], "undecided", 4),
    ],
)
def test_a_change_is_ruled_on_at_the_looks_alone(gains, ruling, pairs) -> None:
    decision = keep_or_drop(gains, WANTED)
    assert decision.ruling == ruling
    assert decision.gain.n == pairs


def ended(late_s: float | None) -> Run:
    """A run of 3 s of steps that worked for `late_s` after them; None: it was cut."""
    after = {"to_its_end": late_s is not None, "window_ended_s": 4.0, "wall_s": 4.0 + (late_s or 0)}
    return replace(a_run(0.0), **after)


@pytest.mark.parametrize(
    ("base", "head", "late"),
    [
        ([0.2, 0.2], [3.2, 3.2], True),
        ([0.2], [3.2], False),  # one run may have been stalled
        ([0.2, 0.2], [3.2, 0.2], False),
        ([0.2, 3.2], [3.2, 3.2], False),
        ([0.2, 0.3, 0.2], [3.2, 0.2, 3.2], True),  # as most are
        ([0.2, 0.2], [0.6, 0.6], False),
        ([0.2, 0.2], [None, None], False),
        ([0.0, 0.0], [3.0, 3.0], True),
    ],
)
def test_work_after_the_steps_is_told_by_two_runs_of_each_arm(base, head, late) -> None:
    assert bool(later_end(*([ended(each) for each in arm] for arm in (base, head)))) is late


def test_what_an_early_look_decided_stays() -> None:
    early = [0.05, 0.06, 0.04, 0.05, 0.07, 0.05, 0.06]
    late = [-0.5] * (RULING_LOOKS[-1] - len(early))
    assert keep_or_drop([*early, *late], WANTED).ruling == "keep"


def test_what_all_looks_may_spend_is_the_chance_that_is_told() -> None:
    for ruling, chance in (("keep", KEPT_BY_CHANCE), ("drop", DROPPED_BY_CHANCE)):
        assert 0.95 * chance < sum(spent[ruling] for spent in RULED.values()) <= chance
