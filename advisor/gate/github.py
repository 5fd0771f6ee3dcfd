"""GitHub Actions: outputs, summary, annotations, environment and forks.

Text that the measured program could have written is hostile here: the log is escaped, files get
fresh random delimiters, and no line of the program's output is taken for a workflow command.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from advisor import masking
from advisor.errors import OutputRefusedError, UsageError
from advisor.files import atomic
from advisor.gate import report
from advisor.gate.checkout import read_event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, MutableMapping

    from advisor.gate.schema import GateRecord

Level = Literal["notice", "warning", "error"]

SUMMARY_BYTES = 900 * 1024
"""GitHub drops a step's summary as a whole above 1 MiB."""

ANNOTATION_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Files of a step; None outside GitHub."""

    output: Path | None = None
    summary: Path | None = None
    withheld: tuple[str, ...] = ()
    """Variables that base and head do not see: tokens and the like."""
    active: bool = False


def take(environ: MutableMapping[str, str] = os.environ, keep: Collection[str] = ()) -> Job:
    """Take the job's files and tokens from the environment.

    No child finds them then. `keep` are names of variables that are not to be withheld.
    """
    names = withheld(environ, keep)
    job = Job(
        output=_path(environ, "GITHUB_OUTPUT"),
        summary=_path(environ, "GITHUB_STEP_SUMMARY"),
        withheld=tuple(name for name in names if name not in STEERING),
        active=environ.get("GITHUB_ACTIONS") == "true",
    )
    for name in names:
        del environ[name]
    return job


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


@contextlib.contextmanager
def no_commands(job: Job, stream: TextIO | None = None) -> Iterator[None]:
    """Disable workflow commands in the log."""
    if not job.active:
        yield
        return
    stream = stream or sys.stderr
    token = secrets.token_hex(16)
    stream.write(f"::stop-commands::{token}\n")
    stream.flush()
    try:
        yield
    finally:
        stream.write(f"\n::{token}::\n")
        stream.flush()


# --- what the step says -------------------------------------------------------------------


def outputs(record: GateRecord, path: Path | None) -> dict[str, str]:
    """Outputs of the action, on every path.

    None: no place for a report.
    """

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    return {
        "verdict": record.verdict,
        "slowdown-pct": figure(record.slowdown_pct),
        "ci-low-pct": figure(record.ci_low_pct),
        "ci-high-pct": figure(record.ci_high_pct),
        "confidence": figure(record.confidence),
        "pairs": str(record.pairs),
        "discarded-pairs": str(record.discarded_pairs),
        "report-json": str(path.with_suffix(".json")) if path else "",
        "report-md": str(path or ""),
    }


def write_outputs(job: Job, values: Mapping[str, str]) -> None:
    """Append `values` to GITHUB_OUTPUT, each between fresh random delimiters.

    Raises OutputRefusedError.
    """
    if job.output is None:
        return
    lines = []
    for name, value in values.items():
        delimiter = f"gpu-advisor-{secrets.token_hex(16)}"
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    _append(job.output, "".join(lines))


def write_summary(job: Job, markdown: str) -> None:
    """Append to the job summary, cut to its limit.

    Raises OutputRefusedError.
    """
    if job.summary is not None:
        _append(job.summary, clipped(markdown, SUMMARY_BYTES) + "\n")


def _append(path: Path, text: str) -> None:
    try:
        atomic.append(path, text.encode(errors="replace"))
    except OSError as problem:
        reason = problem.strerror or problem
        msg = f"{path}, a file of this job, could not be written: {reason}."
        raise OutputRefusedError(msg) from problem


def clipped(markdown: str, limit: int) -> str:
    """At most `limit` bytes, cut between lines."""
    raw = markdown.encode()
    if len(raw) <= limit:
        return markdown
    note = "\n\nThis summary was too long and is cut here; the whole report is in the artifact.\n"
    kept = raw[: limit - len(note.encode())].decode(errors="ignore")
    return kept.rpartition("\n")[0] + note


def level(record: GateRecord, code: int) -> Level:
    """Level of the annotation: an error fails the job.

    Otherwise as the flags say.
    """
    if code:
        return "error"
    undecided = record.verdict in {"inconclusive", "no-baseline"}
    quiet = record.verdict == "pass" or (undecided and record.inputs.on_inconclusive == "pass")
    return "notice" if quiet else "warning"


def annotation(record: GateRecord, loudness: Level) -> str:
    """The one line that marks the run."""
    title = _property(f"Throughput gate: {record.verdict}")
    figures = ""
    if record.slowdown_pct is not None:
        figures = f" Slowdown {record.slowdown_pct:.1f} %, {record.pairs} pairs."
    text = _message(report.reason(record)[:ANNOTATION_CHARS] + figures)
    return f"::{loudness} title={title}::{text}"


def harmless(text: str) -> str:
    """Neutralize `text` for the log.

    No line of it is a workflow command, and none steers a terminal.
    """
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return _OLD_COMMAND.sub(r"\1 \2", _COMMAND.sub(r"\1\\\2", shown))


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_COMMAND = re.compile(r"^([^\S\n]*)(::)", re.MULTILINE)
"""`::error::`, at the beginning of a line."""
_OLD_COMMAND = re.compile(r"(#)(#\[)")
"""`##[error]`, anywhere."""


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


# --- the environment of base and head -----------------------------------------------------

STEERING = (
    "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY",
    "FORGEJO_ENV", "FORGEJO_PATH", "FORGEJO_OUTPUT", "FORGEJO_STATE", "FORGEJO_STEP_SUMMARY",
    "GITEA_ENV", "GITEA_PATH", "GITEA_OUTPUT", "GITEA_STATE", "GITEA_STEP_SUMMARY",
)  # fmt: skip
"""Files with which a step steers later steps."""

TOKENS = (
    "ACTIONS_*", "*_ACTIONS_ID_TOKEN_*", "CI_JOB_TOKEN", "CI_JOB_JWT*", "CI_REGISTRY_PASSWORD",
    "SYSTEM_ACCESSTOKEN", "BUILDKITE_AGENT_ACCESS_TOKEN", "GIT_ASKPASS", "GIT_CONFIG_*",
    "GIT_SSH_COMMAND", "SSH_ASKPASS", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "KUBECONFIG",
    "DOCKER_AUTH_CONFIG", "DOCKER_CONFIG", "NETRC", "AWS_ACCESS_KEY_ID",
)  # fmt: skip
"""Variables that give rights whatever their values look like."""

WORDS = {
    "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "APIKEY", "AUTH", "AUTHORIZATION", "PAT", "JWT", "COOKIE", "WEBHOOK",
}  # fmt: skip
"""Words of a name, between its underscores, that make any value of it a secret."""

KEPT = {
    "PATH", "PWD", "OLDPWD", "HOME", "SHELL", "LANG", "TMPDIR", "USER", "LOGNAME", "PYTHONPATH",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XAUTHORITY", "LS_COLORS",
}  # fmt: skip
"""A program changes without these, and they are no secrets."""


def withheld(environ: Mapping[str, str], keep: Collection[str] = ()) -> tuple[str, ...]:
    """Names of variables withheld from base and head.

    `keep` are names to be left.
    """
    return tuple(sorted(name for name, value in environ.items() if is_withheld(name, value, keep)))


def is_withheld(name: str, value: str, keep: Collection[str] = ()) -> bool:
    """True for a secret, by its name or value.

    `keep` never brings back steering files.
    """
    if name in STEERING:
        return True
    if name in keep or name in KEPT or not value:
        return False
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in TOKENS):
        return True
    named = not WORDS.isdisjoint(name.upper().split("_")) or masking.is_secret(name, value)
    return named or masking.mask_text(value) != value


# --- origin of the code -------------------------------------------------------------------

OWN_EVENTS = {"push", "schedule"}
"""Events whose code is this repository's own, whatever else they hold."""


def refuse_forks(environ: Mapping[str, str], *, allow: bool) -> None:
    """Refuse a fork's code on a self-hosted runner.

    Raises UsageError, unless allowed. The code would run on a machine that keeps its state from job
    to job.
    """
    hosted = environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    if allow or hosted or not is_foreign(environ):
        return
    msg = (
        f"{_event(environ)}, and its code would run on a self-hosted runner, "
        "which it could change for good. Nothing was run. Set --allow-forks only for "
        "runners that are thrown away after each job."
    )
    raise UsageError(msg)


def refuse_unisolated(environ: Mapping[str, str], unprotected: str) -> None:
    """Refuse a fork's code without isolation.

    Raises UsageError; it cannot be allowed. `unprotected` says what is open to it; empty: nothing
    is.
    """
    if unprotected and is_foreign(environ):
        msg = (
            f"{_event(environ)}, and nothing isolates its code here: {unprotected}. Nothing was "
            "run. Use a runner with user namespaces or Landlock (Linux 5.13 or newer)."
        )
        raise UsageError(msg)


def is_foreign(environ: Mapping[str, str]) -> bool:
    """True unless the code is surely this repository's.

    Only a push, a schedule and a pull request of this repository's own branch are known to be
    its own. A merge group, a dispatch, a comment and another workflow's end may be of a fork.
    """
    event = read_event(environ)
    kind = environ.get("GITHUB_EVENT_NAME", "")
    pull = event.get("pull_request")
    if isinstance(pull, dict):
        return _from_fork(pull)
    if not event and not kind:
        return environ.get("GITHUB_ACTIONS") == "true"
    return kind not in OWN_EVENTS


def _event(environ: Mapping[str, str]) -> str:
    if isinstance(read_event(environ).get("pull_request"), dict):
        return "This pull request comes from a fork"
    kind = environ.get("GITHUB_EVENT_NAME") or "This event"
    return f"{kind}: its code may come from a fork"


def _from_fork(pull: Mapping[str, Any]) -> bool:
    """True unless the code is surely of no fork."""
    names = []
    for side in ("head", "base"):
        part = pull.get(side)
        repo = part.get("repo") if isinstance(part, dict) else None
        names.append(repo.get("full_name") if isinstance(repo, dict) else None)
    return not names[0] or names[0] != names[1]
