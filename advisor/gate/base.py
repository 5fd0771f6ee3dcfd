"""The two arms as code on disk: head is the checkout, base a git worktree beside it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import NoBaselineError, UsageError
from advisor.gate.records import Revision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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

    `base_ref` if given. Else, of a pull request, the merge-base with the branch it goes to; of a
    push, the first parent; elsewhere the merge-base with the default branch, or where head is
    that branch itself, its last commit (if there are uncommitted changes) or its first parent.
    Raises NoBaselineError where there is none, and UsageError where it is only not here: such a
    job would never compare anything, and nobody would notice.
    """
    if base_ref:
        sha = _commit(head, base_ref)
        if sha is None:
            msg = f"--base-ref {base_ref!r} names no commit here. Correct it, or {FETCH}"
            raise UsageError(msg)
        return Revision(sha=sha, ref=base_ref)
    targets, sure = _targets(head, environ)
    ref = next((ref for ref in targets if _commit(head, ref)), None)
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
    sha = _commit(head, "HEAD^1")
    if sha is None:
        if git(head.top, "rev-parse", "--is-shallow-repository") == "true":
            msg = f"The parent of HEAD is not in this shallow clone. Give --base-ref, or {FETCH}"
            raise UsageError(msg)
        msg = "HEAD is the first commit, so there is nothing to compare it with."
        raise NoBaselineError(msg)
    return Revision(sha=sha, ref="first parent of HEAD")


FETCH = "fetch the whole history (actions/checkout with fetch-depth: 0)."


def _commit(head: Checkout, ref: str) -> str | None:
    """The commit that `ref` names; None if it names none here."""
    return git(
        head.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
    )


def _targets(head: Checkout, environ: Mapping[str, str]) -> tuple[list[str], bool]:
    """Refs that head is meant to go to, most certain first; whether one of them must exist."""
    event = read_event(environ)
    pull = event.get("pull_request")
    if isinstance(pull, dict) and isinstance(pull.get("base"), dict):
        found = [str(pull["base"].get("sha", "")), f"origin/{pull['base'].get('ref', '')}"]
        return [ref for ref in found if ref], True
    if environ.get("GITHUB_BASE_REF"):
        return [f"origin/{environ['GITHUB_BASE_REF']}"], True
    if environ.get("GITHUB_EVENT_NAME") == "push":
        return [], False
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
def base_checkout(head: Checkout, revision: Revision) -> Iterator[Checkout]:
    """A worktree of `revision` outside the repository, removed at the end.

    Raises NoBaselineError if git cannot make it, or if the folder head runs in is not there.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpu-advisor-base-"))
    top = folder / head.top.name
    try:
        made = _git(
            head.top, "worktree", "add", "--detach", "--quiet", str(top), revision.sha or ""
        )
        if made.returncode:
            msg = f"git could not check out the base {revision.sha}: {made.stderr.strip()}"
            raise NoBaselineError(msg)
        cwd = top / head.cwd.relative_to(head.top.resolve())
        if not cwd.is_dir():
            msg = f"the base has no folder {cwd.relative_to(top)}"
            raise NoBaselineError(msg)
        yield Checkout(top=top, cwd=cwd, revision=revision)
    finally:
        _git(head.top, "worktree", "remove", "--force", str(top))
        shutil.rmtree(folder, ignore_errors=True)
        _git(head.top, "worktree", "prune")


def git(cwd: Path, *args: str) -> str | None:
    """Output of a git command, stripped; None if it failed."""
    done = _git(cwd, *args)
    return done.stdout.strip() if done.returncode == 0 else None


def _git(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(cwd), *args],
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            check=False,
        )
    except OSError as problem:
        msg = f"git could not be started: {problem.strerror}. The gate needs it to check out base."
        raise UsageError(msg) from problem
