"""Whose code is it? Pull requests from forks are refused where they could do harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.errors import UsageError
from advisor.gate.base import read_event

if TYPE_CHECKING:
    from collections.abc import Mapping


def refuse(environ: Mapping[str, str], *, allow: bool) -> None:
    """Raise UsageError for a pull request from a fork on a self-hosted runner, unless allowed.

    Its code would run on a machine that keeps its state from job to job.
    """
    if allow or environ.get("RUNNER_ENVIRONMENT") == "github-hosted" or not is_foreign(environ):
        return
    msg = (
        f"{_what(environ)}, and its code would run on a self-hosted runner, "
        "which it could change for good. Nothing was run. Set allow-forks: true only for "
        "runners that are thrown away after each job."
    )
    raise UsageError(msg)


def refuse_unprotected(environ: Mapping[str, str], unprotected: str) -> None:
    """Raise UsageError for a pull request from a fork where nothing holds its code back.

    `unprotected` says what is open to it; empty: nothing is. It cannot be allowed, on any runner.
    """
    if unprotected and is_foreign(environ):
        msg = (
            f"{_what(environ)}, and nothing isolates its code here: {unprotected}. Nothing was "
            "run. Use a runner with user namespaces or Landlock (Linux 5.13 or newer)."
        )
        raise UsageError(msg)


def is_foreign(environ: Mapping[str, str]) -> bool:
    """Whether the code that the job checks out may come from another repository; in doubt it does.

    A comment on a pull request, and a workflow that another started, run with this repository's
    rights on code that the event names by number alone, or not at all.
    """
    event = read_event(environ)
    pull = event.get("pull_request")
    if isinstance(pull, dict):
        return _from_fork(pull)
    issue = event.get("issue")
    if isinstance(issue, dict) and issue.get("pull_request"):
        return True
    for name in ("workflow_run", "check_run", "check_suite"):
        if isinstance(event.get(name), dict):
            return _started_by_fork(event[name], event)
    return False


def _what(environ: Mapping[str, str]) -> str:
    event = read_event(environ)
    if isinstance(event.get("pull_request"), dict):
        return "This pull request comes from a fork"
    kind = environ.get("GITHUB_EVENT_NAME") or "This event"
    return f"{kind}: this may be about a pull request from a fork"


def _from_fork(pull: Mapping[str, Any]) -> bool:
    """Whether the code comes from another repository; in doubt it does."""
    head, base = (
        side.get("repo") if isinstance(side := pull.get(name), dict) else None
        for name in ("head", "base")
    )
    if not isinstance(head, dict):
        return True
    if isinstance(base, dict) and head.get("full_name") and base.get("full_name"):
        return bool(head["full_name"] != base["full_name"])
    return head.get("fork") is not False


def _started_by_fork(run: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether the repository whose commit set it off is another than this one, or not told.

    A run that no pull request set off is this repository's own.
    """
    suite = run.get("check_suite")
    theirs = run.get("head_repository") or (
        isinstance(suite, dict) and suite.get("head_repository")
    )
    ours = run.get("repository") or event.get("repository")
    names = [each.get("full_name") if isinstance(each, dict) else None for each in (theirs, ours)]
    if all(names):
        return names[0] != names[1]
    pulls = run.get("pull_requests")
    if isinstance(pulls, list) and pulls:
        return not all(isinstance(p, dict) and _same_id(p) for p in pulls)
    return run.get("event") not in {"push", "schedule", "workflow_dispatch", "merge_group"}


def _same_id(pull: Mapping[str, Any]) -> bool:
    """Short forms of a pull request name repositories by id and address only."""
    sides = [
        side.get("repo") if isinstance(side := pull.get(n), dict) else None
        for n in ("head", "base")
    ]
    ids = [repo.get("id") if isinstance(repo, dict) else None for repo in sides]
    return ids[0] is not None and ids[0] == ids[1]
