"""Which commit head is compared with, in each kind of event."""

import json
import shutil
from pathlib import Path

import pytest

from advisor.errors import NoBaselineError, UsageError
from advisor.gate.checkout import base_checkout, base_revision, head_checkout

PUSH = {"GITHUB_EVENT_NAME": "push"}
ON_MAIN = ["checkout -q main"]
MERGED = "merge -q --no-ff --no-edit"
NOWHERE = 40 * "1"


def pull(base: str = "b", head: str = "d") -> dict[str, object]:
    return {"pull_request": {"base": {"sha": base, "ref": "main"}, "head": {"sha": head}}}


EVENTS = {
    # commands of git, base that is asked for, event, environment; commit
    "a pull request: merge-base, not its own previous commit": ([], None, pull(), {}, "a"),
    "main merged into it": ([f"{MERGED} main"], None, pull(), {}, "b"),
    "GitHub's merge of it, of which the event lags behind": (
        ["checkout -q --detach main", f"{MERGED} d"], None, pull("a"), {}, "b",
    ),
    "a merge of main that is the tip itself": (
        [f"{MERGED} main"], None, pull("a", "HEAD"), {}, "a",
    ),
    "a push: the state before it": ([], None, {"before": "a"}, PUSH, "a"),
    "the first push of a branch": (
        ["update-ref refs/remotes/origin/main main"], None,
        {"before": 40 * "0", "repository": {"default_branch": "main"}}, PUSH, "a",
    ),
    "a push of which the state before is not here": ([], None, {"before": NOWHERE}, PUSH, None),
    "a forced push: where the branch left main": (
        [], None, {"before": NOWHERE, "forced": True}, PUSH, "a",
    ),
    "a forced push of main: its parent": (
        ON_MAIN, None, {"before": NOWHERE, "forced": True}, PUSH, "a",
    ),
    "a merge group": ([], None, {"merge_group": {"base_sha": "b"}}, {}, "b"),
    "a merge group that is not here": ([], None, {"merge_group": {"base_sha": NOWHERE}}, {}, None),
    "an event without facts: as on a desk": ([], None, {}, PUSH, "a"),
    "a commit that is asked for": ([], "main", {}, {}, "b"),
    "main itself: its parent": (ON_MAIN, None, {}, {}, "a"),
    **{f"no commit: {ref}": ([], ref, {}, {}, None)
       for ref in ("nowhere", "--help", "-x", "a b", "$(touch x)")},
}  # fmt: skip


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


def with_event(folder: Path, event: object, known: dict[str, str]) -> dict[str, str]:
    """Environment of a job, whose event names commits by their letters."""
    text = json.dumps(event)
    for name, sha in known.items():
        text = text.replace(f'"{name}"', f'"{sha}"')
    (folder / "event.json").write_text(text)
    return {"GITHUB_EVENT_PATH": str(folder / "event.json")}


@pytest.mark.parametrize(("commands", "asked", "event", "env", "base"), EVENTS.values(), ids=EVENTS)
def test_base_of_each_event(branches, tmp_path, commands, asked, event, env, base) -> None:
    """Where it is not here the error says how to get it: a job would never compare anything."""
    repo, shas = branches
    for command in commands:
        repo.git(*(shas.get(word, word) for word in command.split()))
    known = {"HEAD": repo.git("rev-parse", "HEAD"), **shas}
    environ = {**env, **with_event(tmp_path, event, known)} if event else env
    if base is None:
        with pytest.raises(UsageError, match="fetch-depth: 0"):
            base_revision(head_checkout(repo.path), asked, environ)
        assert not (repo.path / "x").exists()
    else:
        assert base_revision(head_checkout(repo.path), asked, environ).sha == shas[base]


@pytest.mark.parametrize(
    ("depth", "base", "words"), [("1", "b", "fetch-depth: 0"), ("2", "0" * 40, "origin/main")]
)
def test_a_shallow_clone_says_how_to_get_the_history(
    branches, tmp_path, depth, base, words
) -> None:
    """Never its own previous commit: a second push would hide the slowdown of the first."""
    repo, shas = branches
    clone = ("clone", "-q", "--depth", depth, "--single-branch", "--branch", "feature")
    repo.git(*clone, repo.path.as_uri(), str(tmp_path / "shallow"))
    environ = with_event(tmp_path, pull(base), shas)
    with pytest.raises(UsageError, match=words):
        base_revision(head_checkout(tmp_path / "shallow"), None, environ)


def test_no_repository_and_no_parent(repo, tmp_path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="no git repository"):
        head_checkout(tmp_path / "none")
    repo.commit({"f": "a"})
    with pytest.raises(NoBaselineError, match="first commit"):
        base_revision(head_checkout(repo.path), None, {})


def test_the_base_is_a_worktree_that_goes_away_and_so_does_that_of_a_killed_gate(branches) -> None:
    repo, _ = branches
    gone = repo.path.parent / "gone"
    repo.git("worktree", "add", "-q", "--detach", str(gone), "main")
    shutil.rmtree(gone)
    head = head_checkout(repo.path)
    with base_checkout(head, base_revision(head, "main", {})) as other:
        assert (other.cwd / "f").read_text() == "b"
        assert not (other.cwd / "g").exists()
        assert not other.top.is_relative_to(repo.path)
    assert not other.top.exists()
    assert len(repo.git("worktree", "list").splitlines()) == 1


def test_a_folder_that_base_lacks_has_no_baseline(branches) -> None:
    repo, _ = branches
    repo.commit({"sub/x": "1"})
    head = head_checkout(repo.path / "sub")
    made = base_checkout(head, base_revision(head, "main", {}))
    with pytest.raises(NoBaselineError, match="no folder sub"), made:
        pass
