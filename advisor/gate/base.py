"""The two arms as code on disk: head is the checkout, base a git worktree beside it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import NoBaselineError, UsageError
from advisor.executor.engines.scratch_dir import scratch_folder
from advisor.gate import bring
from advisor.gate.git import git, run_git
from advisor.gate.records import Revision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """One arm's code: its top folder, and the folder in it in which commands run."""

    top: Path
    cwd: Path
    revision: Revision


def head_checkout(cwd: Path) -> Checkout:
    """The checkout that `cwd` lies in, as it is: uncommitted changes belong to head.

    Raises UsageError outside a git repository.
    """
    top = git(cwd, "rev-parse", "--show-toplevel")
    if top is None:
        msg = (
            f"{cwd} is in no git repository, so there is no base to compare with. Call the gate "
            "inside the repository, or decide on saved runs with --mode replay."
        )
        raise UsageError(msg)
    dirty = bool(git(cwd, "status", "--porcelain", "--untracked-files=no"))
    sha = git(cwd, "rev-parse", "HEAD")
    ref = git(cwd, "rev-parse", "--abbrev-ref", "HEAD")
    return Checkout(
        top=Path(top), cwd=cwd.resolve(), revision=Revision(sha=sha, ref=ref, dirty=dirty)
    )


def base_revision(
    head: Checkout, base_ref: str | None, environ: Mapping[str, str] = os.environ
) -> Revision:
    """What head is compared with.

    `base_ref` if given. Else, of a pull request, the first parent of the merge commit that GitHub
    makes of it, or the merge-base with the branch it goes to; of a push, the state before it;
    elsewhere the merge-base with the default branch, or where head is that branch itself, its last
    commit (if there are uncommitted changes) or its first parent.
    Raises NoBaselineError where there is none, and UsageError where it is only not here: such a
    job would never compare anything, and nobody would notice.
    """
    if base_ref:
        sha = commit_of(head, base_ref)
        if sha is None:
            msg = f"--base-ref {base_ref!r} names no commit here. Correct it, or {FETCH}"
            raise UsageError(msg)
        return Revision(sha=sha, ref=base_ref)
    event = read_event(environ)
    if found := _merged_into(head, event, environ) or _before_push(head, event, environ):
        return found
    targets, sure = _targets(head, event, environ)
    ref = next((ref for ref in targets if commit_of(head, ref)), None)
    if ref is None and sure:
        # Not its own previous commit instead: a second push would hide the slowdown of the first.
        msg = f"{targets[-1]} is not in this clone. Give --base-ref, or {FETCH}"
        raise UsageError(msg)
    if ref is not None:
        sha = git(head.top, "merge-base", "HEAD", ref)
        if sha is None:
            msg = f"HEAD and {ref} have no common commit here. Give --base-ref, or {FETCH}"
            raise UsageError(msg)
        if sha != head.revision.sha:
            return Revision(sha=sha, ref=f"merge-base with {ref}")
    if head.revision.dirty:
        return Revision(sha=head.revision.sha, ref="HEAD, without the uncommitted changes")
    sha = commit_of(head, "HEAD^1")
    if sha is None:
        if git(head.top, "rev-parse", "--is-shallow-repository") == "true":
            msg = f"The parent of HEAD is not in this shallow clone. Give --base-ref, or {FETCH}"
            raise UsageError(msg)
        msg = "HEAD is the first commit, so there is nothing to compare it with."
        raise NoBaselineError(msg)
    return Revision(sha=sha, ref="first parent of HEAD")


def _merged_into(
    head: Checkout, event: Mapping[str, Any], environ: Mapping[str, str]
) -> Revision | None:
    """The first parent of the merge commit that GitHub makes of a pull request; else None.

    The event names the target as it was when the event was made, which may be many commits ago:
    they would be taken for the request's own. A merge that the branch holds itself is another.
    """
    pull = event.get("pull_request")
    if not isinstance(pull, dict) or commit_of(head, "HEAD^2") is None:
        return None
    tip, target = (
        str(side.get("sha") or "") if isinstance(side := pull.get(name), dict) else ""
        for name in ("head", "base")
    )
    theirs = commit_of(head, "HEAD^2")
    made = re.fullmatch(r"refs/pull/\d+/merge", environ.get("GITHUB_REF", ""))
    sure = tip == theirs or (made and environ.get("GITHUB_SHA") == head.revision.sha)
    alike = (not tip or is_ancestor(head, tip, "HEAD^2")) and is_ancestor(head, target, "HEAD^1")
    if head.revision.sha == tip or not (sure or alike):
        return None
    return Revision(sha=commit_of(head, "HEAD^1"), ref="first parent of the merge commit")


def _before_push(
    head: Checkout, event: Mapping[str, Any], environ: Mapping[str, str]
) -> Revision | None:
    """What the branch was before a push of one commit or several; None for a branch that is new.

    Raises UsageError if that commit is not here.
    """
    before = str(event.get("before") or "")
    if environ.get("GITHUB_EVENT_NAME") != "push" or not before.strip("0"):
        return None
    sha = commit_of(head, before)
    if sha is None and not event.get("forced"):
        missing = f"{before}, the state before this push, is not in this clone"
        msg = f"{missing}. Give --base-ref, or {FETCH}"
        raise UsageError(msg)
    return Revision(sha=sha, ref="state before the push") if sha else None


FETCH = "fetch the whole history (actions/checkout with fetch-depth: 0)."


def commit_of(head: Checkout, ref: str) -> str | None:
    """The commit that `ref` names; None if it names none here."""
    return git(
        head.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
    )


def is_ancestor(head: Checkout, ref: str, other: str) -> bool:
    """Whether the commit `ref` is `other`, or lies before it."""
    sha = commit_of(head, ref) if ref else None
    return sha is not None and git(head.top, "merge-base", "--is-ancestor", sha, other) is not None


def _targets(
    head: Checkout, event: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Refs that head is meant to go to, most certain first; whether one of them must exist."""
    pull = event.get("pull_request")
    if isinstance(pull, dict) and isinstance(pull.get("base"), dict):
        found = [str(pull["base"].get("sha", "")), f"origin/{pull['base'].get('ref', '')}"]
        return [ref for ref in found if ref], True
    if environ.get("GITHUB_BASE_REF"):
        return [f"origin/{environ['GITHUB_BASE_REF']}"], True
    if environ.get("GITHUB_EVENT_NAME") == "push":
        repository = event.get("repository")
        default = repository.get("default_branch") if isinstance(repository, dict) else None
        return ([f"origin/{default}"] if default else []), False
    default = git(head.top, "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")
    found = [default or "", "origin/main", "origin/master", "main", "master"]
    return [ref for ref in found if ref], False


def read_event(environ: Mapping[str, str]) -> dict[str, Any]:
    """The event that started a GitHub job; empty elsewhere."""
    with contextlib.suppress(OSError, ValueError):
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
        if isinstance(event, dict):
            return event
    return {}


@contextlib.contextmanager
def base_checkout(
    head: Checkout, revision: Revision, links: Sequence[str] = ()
) -> Iterator[Checkout]:
    """A worktree of `revision` outside the repository, with its submodules and large files, and
    with links to `links`, ignored data of head's; gone at the end, also when we are killed.

    Raises NoBaselineError if git cannot make it, or if the folder head runs in is not there, and
    UsageError for a link that cannot be.
    """
    sources = bring.shared(head.top, head.cwd, links)
    git(head.top, "worktree", "prune")  # what a killed gate left
    books = Path(git_folder(head.top), "worktrees")
    with scratch_folder() as folder:
        top = folder / head.top.name
        try:
            made = run_git(
                head.top,
                *("worktree", "add", "--detach", "--quiet", str(top), revision.sha or ""),
                variables={"GIT_LFS_SKIP_SMUDGE": "1"},
            )
            if made.returncode:
                msg = f"git could not check out {revision.sha}: {made.stderr.strip()}"
                raise NoBaselineError(msg)
            bring.submodules(head.top, top)
            bring.large_files(head.top, top)
            cwd = top / head.cwd.relative_to(head.top.resolve())
            if not cwd.is_dir():
                msg = f"{(revision.sha or '')[:12]} has no folder {cwd.relative_to(top)}"
                raise NoBaselineError(msg)
            bring.links(sources, links, cwd)
            yield Checkout(top=top, cwd=cwd, revision=revision)
        finally:
            _forget(books, top)


def _forget(books: Path, worktree: Path) -> None:
    """Remove the worktree and its entry in `books`. By then the programs have run, and could have
    told git to start something: it is not asked."""
    shutil.rmtree(worktree, ignore_errors=True)
    for entry in books.glob("*"):
        with contextlib.suppress(OSError):
            if Path((entry / "gitdir").read_text().strip()).is_relative_to(worktree):
                shutil.rmtree(entry, ignore_errors=True)
    with contextlib.suppress(OSError):
        books.rmdir()  # only if it is empty


def git_folder(top: Path) -> str:
    """The folder in which the repository of the checkout at `top` keeps its books."""
    return git(top, "rev-parse", "--path-format=absolute", "--git-common-dir") or str(top / ".git")
