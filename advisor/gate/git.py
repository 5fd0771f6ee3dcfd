"""The one door to git: no hook, no monitor and no prompt of a repository's is ever started."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from advisor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


def git(cwd: Path, *args: str) -> str | None:
    """Output of a git command, stripped; None if it failed. Raises UsageError without git."""
    done = run_git(cwd, *args)
    return done.stdout.strip() if done.returncode == 0 else None


def run_git(
    cwd: Path, *args: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A git command as it ended, with `variables` on top of ours. Raises UsageError without git."""
    try:
        return subprocess.run(
            ["git", *QUIET, "-C", str(cwd), *args],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(variables or {})},
            check=False,
        )
    except OSError as problem:
        msg = f"git could not be started: {problem.strerror}. The gate needs it to check out base."
        raise UsageError(msg) from problem
