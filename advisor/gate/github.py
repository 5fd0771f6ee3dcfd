"""GitHub Actions: outputs, summary, annotations, environment and forks.

What a program prints may be meant for GitHub. It is escaped for logs (`harmless`), and put between
random delimiters in files (`delimited`).
"""

import contextlib
import fnmatch
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from advisor import masking
from advisor.errors import OutputRefusedError, UsageError
from advisor.gate import report
from advisor.gate.checkout import fact, read_event
from advisor.gate.schema import GateRecord

STEERING = {
    f"{forge}_{name}"
    for forge in ("GITHUB", "FORGEJO", "GITEA")
    for name in ("ENV", "PATH", "OUTPUT", "STATE", "STEP_SUMMARY")
}
"""Variables of files through which a step acts on the rest of its job."""
TOKENS = (
    "ACTIONS_*", "SYSTEM_ACCESSTOKEN", "GIT_ASKPASS", "GIT_CONFIG_*", "GIT_SSH_COMMAND",
    "SSH_ASKPASS", "GPG_AGENT_INFO", "KUBECONFIG", "DOCKER_CONFIG", "NETRC", "AWS_ACCESS_KEY_ID",
)  # fmt: skip
"""Names of variables that give rights, as patterns of fnmatch."""
WORDS = {
    "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "APIKEY", "AUTH", "AUTHORIZATION", "PAT", "JWT", "COOKIE", "WEBHOOK",
}  # fmt: skip
"""Words of a name, between underscores, that mark a secret."""
KEPT = {
    "PATH", "PWD", "OLDPWD", "HOME", "SHELL", "LANG", "TMPDIR", "USER", "LOGNAME", "PYTHONPATH",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XAUTHORITY", "LS_COLORS",
}  # fmt: skip
"""Never withheld, though a rule might match: a program behaves otherwise without them."""
OWN_EVENTS = {"push", "schedule"}
"""Events of this repository's own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubStep:
    """What a step of GitHub gives the gate, and what is withheld from programs.

    `output` and `summary` are files, None outside GitHub.
    """

    output: Path | None = None
    summary: Path | None = None
    withheld: tuple[str, ...] = ()
    """Names of variables, such as tokens, that neither arm sees."""
    active: bool = False
    """This is a job of GitHub Actions."""


def take(
    environ: MutableMapping[str, str] = os.environ, keep: Collection[str] = ()
) -> GithubStep:
    """Remove secrets and the step's files from `environ`, so that no child inherits them.

    Returns the files, and the names of the secrets. `keep`: names that stay (--keep-env).
    """
    names = sorted(
        name for name, value in environ.items() if is_withheld(name, value, keep)
    )
    paths = (environ.get(name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"))
    output, summary = (Path(path) if path else None for path in paths)
    withheld = tuple(name for name in names if name not in STEERING)
    active = environ.get("GITHUB_ACTIONS") == "true"
    for name in names:
        del environ[name]
    return GithubStep(output=output, summary=summary, withheld=withheld, active=active)


@contextlib.contextmanager
def no_commands() -> Iterator[None]:
    """Disable workflow commands in the log."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(f"\n::{token}::", file=sys.stderr, flush=True)


def outputs(record: GateRecord, path: Path | None) -> dict[str, str]:
    """All outputs of the action, whatever the verdict.

    `path`: the Markdown report; None if it could not be claimed.
    """
    figures = ("slowdown_pct", "ci_low_pct", "ci_high_pct", "confidence")
    values = {name.replace("_", "-"): getattr(record, name) for name in figures}
    return {
        "verdict": record.verdict,
        **{name: "" if value is None else f"{value:.2f}" for name, value in values.items()},
        "pairs": str(record.pairs),
        "discarded-pairs": str(record.discarded_pairs),
        "report-json": str(path.with_suffix(".json")) if path else "",
        "report-md": str(path or ""),
    }


def delimited(values: Mapping[str, str]) -> str:
    """`values` as GITHUB_OUTPUT reads them, between random delimiters."""
    lines = []
    for name, value in values.items():
        delimiter = f"gpu-advisor-{secrets.token_hex(16)}"
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(lines)


def append(path: Path | None, content: str) -> None:
    """Append to a job's file, if any. Raises OutputRefusedError."""
    try:
        if path is not None:
            with path.open("ab") as file:
                file.write(content.encode(errors="replace"))
    except OSError as problem:
        msg = f"{path}, a file of this job, could not be written: {problem}."
        raise OutputRefusedError(msg) from problem


def annotation(record: GateRecord, code: int) -> str:
    """Workflow command that shows the verdict at the run.

    `code` is the gate's exit code. It is what fails the step, and the level only follows it: an
    error unless it is 0, else a notice for a pass and a warning for the rest.
    """
    level = "error" if code else "notice" if record.verdict == "pass" else "warning"
    said = report.reason(record)
    if record.slowdown_pct is not None:
        said += f" Slowdown {record.slowdown_pct:.1f} %, {record.pairs} pairs."
    said = said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title=Throughput gate%3A {record.verdict}::{said}"


def harmless(text: str) -> str:
    """Neutralize `text` for logs: no workflow command, no terminal control."""
    visible = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return _COMMAND.sub(r"\1\\\2", visible).replace("##[", "# #[")


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_COMMAND = re.compile(r"^([^\S\n]*)(::)", re.MULTILINE)


def is_withheld(name: str, value: str, keep: Collection[str] = ()) -> bool:
    """True for a variable that no measured program may see.

    That is STEERING always, else a secret by name or value, unless `keep` (--keep-env) or KEPT
    names it.
    """
    if name in STEERING:  # whatever `keep` says
        return True
    if name in keep or name in KEPT or not value:
        return False
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in TOKENS):
        return True
    named = not WORDS.isdisjoint(name.upper().split("_")) or masking.is_secret(name, value)
    return named or masking.mask_text(value) != value


def refuse_foreign(environ: Mapping[str, str], *, allow: bool, unprotected: str) -> None:
    """Refuse code, perhaps a fork's, where it could do harm. Raises UsageError.

    `unprotected`: why nothing isolates programs here, empty if something does. `allow`:
    --allow-forks.
    """
    if not is_foreign(environ):
        return
    if unprotected:
        reason = f"nothing isolates it here: {unprotected}"
        remedy = "Use a runner with user namespaces or Landlock (Linux 5.13 or newer)."
    elif allow or environ.get("RUNNER_ENVIRONMENT") == "github-hosted":
        return
    else:
        reason = "it would run on a self-hosted runner, which it could change for good"
        remedy = "Set --allow-forks only for runners that are thrown away after each job."
    event = environ.get("GITHUB_EVENT_NAME") or "This event"
    msg = f"{event}: its code may come from a fork, and {reason}. Nothing was run. {remedy}"
    raise UsageError(msg)


def is_foreign(environ: Mapping[str, str]) -> bool:
    """True unless the code is surely this repository's.

    Merge groups, dispatches, comments and other workflows' ends may be of a fork. Outside of a
    CI job the caller's own working tree is trusted.
    """
    event = read_event(environ)
    kind = environ.get("GITHUB_EVENT_NAME", "")
    if "pull_request" in event:
        repo = ("repo", "full_name")
        theirs, ours = (
            fact(event, "pull_request", side, *repo) for side in ("head", "base")
        )
        return not theirs or theirs != ours
    is_job = bool(event or kind) or environ.get("GITHUB_ACTIONS") == "true"
    return is_job and kind not in OWN_EVENTS
