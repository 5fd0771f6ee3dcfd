"""What base and head see of the caller's environment: no token, and no file that steers the job."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from advisor import masking

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

STEERING = (
    "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY",
    "FORGEJO_ENV", "FORGEJO_PATH", "FORGEJO_OUTPUT", "FORGEJO_STATE", "FORGEJO_STEP_SUMMARY",
    "GITEA_ENV", "GITEA_PATH", "GITEA_OUTPUT", "GITEA_STATE", "GITEA_STEP_SUMMARY",
)  # fmt: skip
"""Files through which a step steers the steps after it."""

TOKENS = (
    "ACTIONS_*", "*_ACTIONS_ID_TOKEN_*", "CI_JOB_TOKEN", "CI_JOB_JWT*", "CI_REGISTRY_PASSWORD",
    "SYSTEM_ACCESSTOKEN", "BUILDKITE_AGENT_ACCESS_TOKEN", "GIT_ASKPASS", "GIT_CONFIG_*",
    "GIT_SSH_COMMAND", "SSH_ASKPASS", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "KUBECONFIG",
    "DOCKER_AUTH_CONFIG", "DOCKER_CONFIG", "NETRC", "AWS_ACCESS_KEY_ID",
)  # fmt: skip
"""What gives rights whatever its value looks like."""

WORDS = {
    "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "APIKEY", "AUTH", "AUTHORIZATION", "PAT", "JWT", "COOKIE", "WEBHOOK",
}  # fmt: skip
"""Words of a name, between its underscores, that make any value of it a secret."""

KEPT = {
    "PATH", "PWD", "OLDPWD", "HOME", "SHELL", "LANG", "TMPDIR", "USER", "LOGNAME", "PYTHONPATH",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XAUTHORITY", "LS_COLORS",
}  # fmt: skip
"""Without these a program would be another, and they are no secrets."""


def withheld(environ: Mapping[str, str], keep: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the variables that base and head must not see; `keep` are names to be left."""
    return tuple(sorted(name for name, value in environ.items() if is_withheld(name, value, keep)))


def is_withheld(name: str, value: str, keep: Collection[str] = ()) -> bool:
    """By its name, or by the shape of its value. No `keep` brings back what steers the job."""
    if name in STEERING:
        return True
    if name in keep or name in KEPT or not value:
        return False
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in TOKENS):
        return True
    named = not WORDS.isdisjoint(name.upper().split("_")) or masking.is_secret(name, value)
    return named or masking.mask_text(value) != value
