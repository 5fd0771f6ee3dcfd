"""Which commit head is compared with, in each kind of event."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from advisor.errors import NoBaselineError, UsageError
from advisor.gate.checkout import base_checkout, base_revision, head_checkout

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory, new_repo) -> tuple[Path, dict[str, str]]:
    """What each test has a copy of."""
    repo = new_repo(tmp_path_factory.mktemp("grown"))
    shas = {"a": repo.commit({"f": "a"}), "b": repo.commit({"f": "b"})}
    repo.git("checkout", "-q", "-b", "feature", shas["a"])
    shas |= {"c": repo.commit({"g": "c"}), "d": repo.commit({"g": "d"})}
    return repo.path, shas


@pytest.fixture
def branches(repo, grown: tuple[Path, dict[str, str]]):
    """main: a - b; feature off a: c - d, checked out."""
    path, shas = grown
    shutil.copytree(path, repo.path, symlinks=True, dirs_exist_ok=True)
    return repo, shas


def event(tmp_path: Path, content: object) -> dict[str, str]:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(content))
    return {"GITHUB_EVENT_PATH": str(path)}


@pytest.mark.parametrize(("merged", "base"), [(False, "a"), (True, "b")])
def test_a_pull_request_is_compared_with_its_merge_base(
    branches, tmp_path, base: str, *, merged: bool
) -> None:
    """Not with its own previous commit; a merge of the target is compared with the target."""
    repo, shas = branches
    if merged:
        repo.git("merge", "-q", "--no-edit", "main")
    pull = {"pull_request": {"base": {"sha": shas["b"], "ref": "main"}}}
    found = base_revision(head_checkout(repo.path), None, event(tmp_path, pull))
    assert found.sha == shas[base]


def test_a_pull_request_is_compared_with_what_it_is_merged_into(branches, tmp_path) -> None:
    """The event's base lags behind the merge: 40 % lost on main since would be the request's."""
    repo, shas = branches
    repo.git("checkout", "-q", "--detach", "main")
    repo.git("merge", "-q", "--no-ff", "--no-edit", shas["d"])
    sides = {"base": {"sha": shas["a"], "ref": "main"}, "head": {"sha": shas["d"]}}
    found = base_revision(head_checkout(repo.path), None, event(tmp_path, {"pull_request": sides}))
    assert found.sha == shas["b"]


def test_a_merge_commit_of_the_branch_itself_is_not_githubs(branches, tmp_path) -> None:
    """A workflow may check the tip out, and the tip may be a merge of main: all of it counts."""
    repo, shas = branches
    repo.git("merge", "-q", "--no-edit", "main")
    tip = repo.git("rev-parse", "HEAD")
    sides = {"base": {"sha": shas["a"], "ref": "main"}, "head": {"sha": tip}}
    found = base_revision(head_checkout(repo.path), None, event(tmp_path, {"pull_request": sides}))
    assert found.sha == shas["a"]


def test_a_push_of_several_commits_is_compared_with_the_state_before_it(branches, tmp_path) -> None:
    """Else all but the last of them would never be measured."""
    repo, shas = branches
    environ = event(tmp_path, {"before": shas["a"]}) | {"GITHUB_EVENT_NAME": "push"}
    assert base_revision(head_checkout(repo.path), None, environ).sha == shas["a"]


@pytest.mark.parametrize("before", [40 * "0", None])
def test_the_first_push_of_a_branch_is_compared_with_where_it_left(
    branches, tmp_path, before
) -> None:
    repo, shas = branches
    repo.git("update-ref", "refs/remotes/origin/main", "main")
    pushed = {"before": before, "repository": {"default_branch": "main"}}
    environ = event(tmp_path, pushed) | {"GITHUB_EVENT_NAME": "push"}
    assert base_revision(head_checkout(repo.path), None, environ).sha == shas["a"]


def test_the_state_before_a_push_that_is_not_here_says_how_to_get_it(branches, tmp_path) -> None:
    """Unless it was forced: then it may be nowhere, and the first parent is what there is."""
    repo, shas = branches
    for forced in (False, True):
        pushed = {"before": 40 * "1", "forced": forced}
        environ = event(tmp_path, pushed) | {"GITHUB_EVENT_NAME": "push"}
        if forced:
            assert base_revision(head_checkout(repo.path), None, environ).sha == shas["c"]
        else:
            with pytest.raises(UsageError, match="fetch-depth: 0"):
                base_revision(head_checkout(repo.path), None, environ)


def test_what_a_killed_gate_left_is_gone_with_the_next(branches) -> None:
    """Its folder went with it; git's books are put right."""
    repo, _ = branches
    gone = repo.path.parent / "gone"
    repo.git("worktree", "add", "-q", "--detach", str(gone), "main")
    shutil.rmtree(gone)
    head = head_checkout(repo.path)
    with base_checkout(head, base_revision(head, "main", {})):
        pass
    assert len(repo.git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("asked", "environ", "base"),
    [
        (None, {"GITHUB_EVENT_NAME": "push"}, "c"),  # the first parent
        (None, {}, "a"),  # a desk: where the branch left main
        ("main", {}, "b"),  # as it is
    ],
)
def test_without_an_event_the_branch_decides_unless_a_base_is_named(
    branches, asked: str | None, environ: dict[str, str], base: str
) -> None:
    repo, shas = branches
    assert base_revision(head_checkout(repo.path), asked, environ).sha == shas[base]


def test_main_itself_is_compared_with_its_parent_or_its_last_commit(branches) -> None:
    repo, shas = branches
    repo.git("checkout", "-q", "main")
    assert base_revision(head_checkout(repo.path), None, {}).sha == shas["a"]
    (repo.path / "f").write_text("changed")
    assert base_revision(head_checkout(repo.path), None, {}).sha == shas["b"]


@pytest.mark.parametrize("ref", ["nowhere", "--help", "-x", "a b", "$(touch x)"])
def test_a_base_ref_that_is_no_commit_says_how_to_get_it(branches, ref: str) -> None:
    repo, _ = branches
    with pytest.raises(UsageError, match="fetch-depth"):
        base_revision(head_checkout(repo.path), ref, {})
    assert not (repo.path / "x").exists()


def test_a_shallow_clone_says_how_to_get_the_history(branches, tmp_path) -> None:
    repo, shas = branches
    shallow = tmp_path / "shallow"
    repo.git("clone", "-q", "--depth", "1", repo.path.as_uri(), str(shallow))
    pull = {"pull_request": {"base": {"sha": shas["b"], "ref": "main"}}}
    with pytest.raises(UsageError, match="fetch-depth: 0"):
        base_revision(head_checkout(shallow), None, event(tmp_path, pull))


def test_a_pull_request_is_never_compared_with_its_own_previous_commit(branches, tmp_path) -> None:
    """Its target is not in a clone of a single branch: a second push would hide the first."""
    repo, _ = branches
    single = tmp_path / "single"
    source = repo.path.as_uri()
    repo.git("clone", "-q", "--depth", "2", "--branch", "feature", source, str(single))
    pull = {"pull_request": {"base": {"sha": "0" * 40, "ref": "main"}}}
    with pytest.raises(UsageError, match="origin/main', is not in this clone"):
        base_revision(head_checkout(single), None, event(tmp_path, pull))


def test_outside_a_repository_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="no git repository"):
        head_checkout(tmp_path)


def test_the_first_commit_has_no_baseline(repo) -> None:
    repo.commit({"f": "a"})
    with pytest.raises(NoBaselineError, match="first commit"):
        base_revision(head_checkout(repo.path), None, {})


def test_the_base_is_a_worktree_that_goes_away(branches) -> None:
    repo, shas = branches
    head = head_checkout(repo.path)
    with base_checkout(head, base_revision(head, "main", {})) as other:
        assert (other.cwd / "f").read_text() == "b"
        assert not (other.cwd / "g").exists()
        assert not other.top.is_relative_to(repo.path)
    assert not other.top.exists()
    assert shas["b"] not in repo.git("worktree", "list", "--porcelain").replace(str(repo.path), "")


def test_a_folder_that_base_lacks_has_no_baseline(branches) -> None:
    repo, _ = branches
    repo.commit({"sub/x": "1"})
    head = head_checkout(repo.path / "sub")
    with (
        pytest.raises(NoBaselineError, match="no folder sub"),
        base_checkout(head, base_revision(head, "main", {})),
    ):
        pass
