"""The first bad commit of a range: found, or said why not."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import jsonschema
import pytest
from gate_engine import in_process

from advisor.errors import UsageError
from advisor.gate import bisect, report, texts
from advisor.gate.commits import Commit, Suspects
from advisor.sandbox.capabilities import FORCED
from tests.gate.repos import ROOT, STEADY, Repo

if TYPE_CHECKING:
    from pathlib import Path


def graph(text: str) -> Suspects:
    """`b:a c:a d:b,c`: commits behind their parents."""
    pairs = [item.partition(":") for item in text.split()]
    return Suspects(
        commits=tuple(
            Commit(sha=sha, subject=sha, parents=tuple(filter(None, parents.split(","))))
            for sha, _, parents in pairs
        )
    )


# --- the search itself --------------------------------------------------------------------


@pytest.mark.parametrize("first", range(100))
def test_every_first_bad_commit_of_a_line_is_found_in_halves(first: int) -> None:
    """Of 100 commits in at most seven questions, whichever it is."""
    suspects = graph("c0:good " + " ".join(f"c{n + 1}:c{n}" for n in range(99)))
    questions = 0
    while commit := suspects.ask():
        questions += 1
        bad = int(commit.sha[1:]) >= first
        suspects = suspects.bad(commit.sha) if bad else suspects.good(commit.sha)
    assert [c.sha for c in suspects.commits] == [f"c{first}"]
    assert questions <= 7


MERGED = "a:good b:a c:b x:a y:x m:c,y d:m e:d"
"""Two branches from a, merged by m."""


@pytest.mark.parametrize("first", MERGED.replace(":", " ").split()[::2])
def test_every_first_bad_commit_of_two_branches_is_found(first: str) -> None:
    """What a commit is not built on says nothing of it, and it nothing of that."""
    whole = graph(MERGED)
    held = {"a": "abcxymde", "b": "bcmde", "c": "cmde", "x": "xymde", "y": "ymde", "m": "mde",
            "d": "de", "e": "e"}[first]  # fmt: skip
    suspects = whole
    while commit := suspects.ask():
        bad = commit.sha in held
        suspects = suspects.bad(commit.sha) if bad else suspects.good(commit.sha)
    assert [c.sha for c in suspects.commits] == [first]


def test_what_is_skipped_leaves_those_that_cannot_be_told_apart() -> None:
    suspects = graph("a:good b:a c:b d:c e:d")
    answers = {"a": "good", "b": "skip", "c": "skip", "d": "bad", "e": "bad"}
    asked = []
    while commit := suspects.ask():
        asked.append(commit.sha)
        suspects = getattr(suspects, answers[commit.sha])(commit.sha)
    assert [c.sha for c in suspects.commits] == ["b", "c", "d"]
    assert len(asked) == len(set(asked))


# --- on real commits, worktrees and setups --------------------------------------------------


@pytest.fixture
def search(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Bisects a range with everything real but the processes that are measured."""
    quick = in_process(repo.path, tmp_path, monkeypatch, bisect)
    return lambda *args: quick(bisect.search, *args)


def line(repo: Repo, *rates: float | None) -> list[str]:
    """A commit of each rate, in a row; None does not run. Their names."""
    return [
        repo.commit({"rate": "" if rate is None else str(rate)}, f"commit {number}")
        for number, rate in enumerate(rates)
    ]


def test_the_first_bad_commit_is_found_over_those_that_do_not_run(repo, search) -> None:
    """What does not run is passed over, as `git bisect skip` does, and named."""
    shas = line(repo, 100, 101, 100, None, 99, 80, 81)
    record = search("--bisect", f"{shas[0]}..")
    assert record.verdict == "regression"
    assert [each.sha for each in record.bisection.suspects] == [shas[5]]
    assert f"the first bad commit is {shas[5][:12]} 'commit 5'" in record.reason
    steps = {step.commit.sha: step.found for step in record.bisection.steps}
    assert steps == {shas[3]: "skipped", shas[2]: "good", shas[4]: "good", shas[5]: "bad"}
    assert record.slowdown_pct == pytest.approx(19, abs=0.5)
    assert (record.base.sha, record.head.sha) == (shas[0], shas[6])


def test_the_report_tells_every_commit_that_was_measured(repo, search) -> None:
    shas = line(repo, 100, None, 100, 80)
    record = search("--bisect", f"{shas[0]}..")
    text = report.markdown(record)
    assert "**First bad commit**" in report.lines(record)
    assert f"| {shas[2][:12]} | commit 2 | good |" in text
    assert "- Processes: 39, in" in text, "the ends, one commit that breaks, one that is good"
    schema = json.loads((ROOT / "docs" / "gate.schema.json").read_text())
    jsonschema.validate(json.loads(texts.dump(record)), schema)
    assert all(step.commit.sha[:12] in report.comment(record) for step in record.bisection.steps)


def test_what_the_first_bad_commit_changed_is_told(repo, search) -> None:
    """Against the good end; the bad end, which waits even longer, is another commit."""
    good = repo.commit({"rate": "100", "waits": "0.1"}, "good")
    repo.commit({"rate": "80", "waits": "0.28"}, "first bad")
    repo.commit({"rate": "60", "waits": "0.5"}, "worse still")
    record = search("--bisect", f"{good}..")
    (why,) = record.attribution
    assert why.sentence.startswith("Waiting for data grew from ")
    assert "to 3.5 ms a sample: 100 % of the added time" in why.sentence
    first, *_ = report.lines(record).splitlines()
    assert "'first bad'. Waiting for data grew" in first
    assert "| figure of one extra run | good end | first bad commit |" in report.markdown(record)


def test_commits_between_which_nothing_can_be_told_are_all_named(repo, search) -> None:
    shas = line(repo, 100, None, None, 80)
    record = search("--bisect", f"{shas[0]}..")
    assert [each.sha for each in record.bisection.suspects] == shas[1:]
    assert "is one of" in record.reason
    assert record.attribution == [], "which of them changed what is not known"
    assert "passed over: command: head failed (crash): it broke" in report.markdown(record)


def test_a_slowdown_that_is_just_proven_is_halved_to_tell_good_from_bad(repo, search) -> None:
    """At 6.5 % against 5 % a step would have no room; half of it tells both sides apart."""
    shas = line(repo, 100, 100, 93.5, 93.5, 93.5)
    record = search("--bisect", f"{shas[0]}..")
    assert record.bisection.threshold == pytest.approx(0.0325, abs=0.002)
    assert [each.sha for each in record.bisection.suspects] == [shas[2]]


def test_the_first_of_two_slowdowns_is_the_first_bad_commit(repo, search) -> None:
    shas = line(repo, 100, 90, 90, 60, 60)
    record = search("--bisect", f"{shas[0]}..")
    assert [each.sha for each in record.bisection.suspects] == [shas[1]]


def test_uncommitted_changes_are_part_of_no_commit(repo, search) -> None:
    """The checkout holds a program a hundred times slower."""
    shas = line(repo, 100, 80)
    (repo.path / "rate").write_text("1")
    record = search("--bisect", f"{shas[0]}..")
    assert record.slowdown_pct == pytest.approx(20, abs=0.5)
    assert any("uncommitted changes are part of no commit" in note for note in record.notes)


def test_no_worktree_is_left_and_the_good_end_is_set_up_once(repo, search) -> None:
    shas = line(repo, 100, 100, 80)
    log = repo.out / "setup.log"
    search("--bisect", f"{shas[0]}..", "--setup", f"echo $GPU_ADVISOR_ARM $PWD >> {log}")
    assert len(repo.git("worktree", "list").splitlines()) == 1
    lines = [text.split() for text in log.read_text().splitlines()]
    assert [arm for arm, _ in lines] == ["base", "head", "head"]
    assert len({folder for _, folder in lines}) == 3


def test_a_setup_may_write_neither_to_the_checkout_nor_to_the_good_end(
    repo, search, monkeypatch
) -> None:
    """Where an isolation holds."""
    monkeypatch.delenv(FORCED)
    shas = line(repo, 100, 100, 80)
    write = f'[ "$GPU_ADVISOR_ARM" = base ] || echo 1 > {repo.path}/rate'
    search("--bisect", f"{shas[0]}..", "--setup", write)
    assert (repo.path / "rate").read_text() == "80"


def test_a_range_in_which_nothing_is_slower_is_one_sentence(repo, search) -> None:
    shas = line(repo, 100, 80, 100)
    record = search("--bisect", f"{shas[0]}..{shas[2]}")
    assert record.verdict == "pass"
    assert "nothing is slower at the bad end" in record.reason
    assert record.bisection.steps == []


def test_a_good_end_that_does_not_run_is_no_answer(repo, search) -> None:
    shas = line(repo, None, 100, 80)
    record = search("--bisect", f"{shas[0]}..")
    assert record.verdict == "no-baseline"
    assert "was not proven slower" in record.reason


def test_a_spent_budget_names_the_commits_that_are_left(repo, search, monkeypatch) -> None:
    """All commits share one budget; what it did not answer is listed."""
    shas = line(repo, 100, 100, 100, 50, 50)
    monkeypatch.setattr(bisect, "ENOUGH_MIN", 1000.0)
    record = search("--bisect", f"{shas[0]}..")
    assert record.verdict == "regression"
    assert [each.sha for each in record.bisection.suspects] == shas[1:]
    assert "the budget of 30 minutes was spent" in record.reason


@pytest.fixture
def merged(repo: Repo) -> dict[str, str]:
    """a - b - m - d, where m brings x, which left before b; x is what is slow."""
    shas = {"a": repo.commit({"rate": "100", "other": ""}, "a")}
    repo.git("checkout", "-q", "-b", "side")
    shas["x"] = repo.commit({"rate": "80"}, "x")
    repo.git("checkout", "-q", "main")
    shas["b"] = repo.commit({"other": "b"}, "b")
    repo.git("merge", "-q", "--no-ff", "-m", "m", "side")
    shas["m"] = repo.git("rev-parse", "HEAD")
    shas["d"] = repo.commit({"other": "d"}, "d")
    return shas


def test_a_merge_of_a_branch_that_left_before_the_good_end_is_the_first_bad_one(
    merged, search
) -> None:
    """x is not built on b: it is not measured against it, and where to look is said."""
    record = search("--bisect", f"{merged['b']}..")
    assert [each.sha for each in record.bisection.suspects] == [merged["m"]]
    hint = f"--bisect {merged['a'][:12]}..{merged['x'][:12]}"
    assert any(hint in note for note in record.notes)


def test_first_parent_takes_a_merge_for_one_commit(merged, search) -> None:
    record = search("--bisect", f"{merged['a']}..", "--first-parent")
    assert [each.sha for each in record.bisection.suspects] == [merged["m"]]
    assert record.bisection.commits == 3


def test_without_it_the_commits_of_a_branch_are_searched_too(merged, search) -> None:
    record = search("--bisect", f"{merged['a']}..")
    assert [each.sha for each in record.bisection.suspects] == [merged["x"]]
    assert any("--first-parent follows" in note for note in record.notes)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--bisect", "HEAD"), "no range"),
        (("--bisect", "HEAD^...HEAD"), "no range"),
        (("--bisect", "..HEAD"), "no range"),
        (("--bisect", "nowhere..HEAD"), "'nowhere' names no commit"),
        (("--bisect", "HEAD..HEAD"), "no commit between"),
        (("--bisect", "HEAD..HEAD^"), "is not built on"),
        (("--bisect=--all..HEAD",), "names no commit"),
        (("--bisect", "HEAD^..", "--mode", "history"), "--mode history does not"),
        (("--bisect", "HEAD^..", "--base-ref", "HEAD"), "Leave --base-ref out"),
        (("--first-parent",), "Give --bisect"),
        (("--mode", "bisect"), "needs a range"),
    ],
)
def test_what_is_no_range_is_one_sentence(repo, search, flags: tuple[str, ...], said: str) -> None:
    line(repo, 100, 80)
    with pytest.raises(UsageError) as found:
        search(*flags)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


# --- as a user calls it -------------------------------------------------------------------

BENCH = ("--command", "python bench.py")


@pytest.mark.slow
def test_a_killed_search_leaves_no_worktree_to_the_next_call(repo) -> None:
    """SIGKILL in the middle of a pair: the worktrees are gone, and git forgets them."""
    for rate in (100, 100, 80):
        repo.commit({"bench.py": STEADY.format(rate=rate)})
    command = repo.command(*BENCH, "--bisect", "HEAD~2..")
    with subprocess.Popen(
        command, cwd=repo.path, env=repo.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for text in process.stderr:
            if "commits are left" in text:
                break
        time.sleep(1)
        process.kill()
        process.communicate()
    found = repo.gate(*BENCH, "--bisect", "HEAD~2..")
    assert found.code == 1, found.stderr
    assert "the first bad commit is" in found.stdout
    assert len(repo.git("worktree", "list").splitlines()) == 1
