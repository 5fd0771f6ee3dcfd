"""Setup of an arm before anything is measured, in the sandbox: its checkout alone is writable."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from advisor.errors import InterruptedByUserError
from advisor.gate.checkout import git
from advisor.runner.job import Job
from advisor.runner.launch import Launched
from advisor.runner.output import Tally, plain
from advisor.sandbox.capabilities import ASKED_FOR, checkout_policy, detect_isolation

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from advisor.gate.checkout import Checkout

MADE_FOLDERS = (".venv", "build")
"""Made in a checkout before its setup: Landlock lets nothing new be made beside `.git`."""
TAIL_LINES = 20
POLL_S = 0.2


def set_up(
    checkout: Checkout,
    command: str,
    env: Mapping[str, str],
    *,
    scratch: Path,
    limit_s: float,
    cancel: threading.Event,
) -> str | None:
    """Run the shell string `command` in `checkout`; the reason if it failed, else None.

    Nothing that it started outlives it. Raises InterruptedByUserError once `cancel` is set.
    """
    cwd = checkout.cwd
    offer = detect_isolation(str(cwd))
    made = _make_folders(checkout.top) if offer.kind == "landlock" else []
    confined = checkout_policy(offer, str(checkout.top), scratch=scratch)
    temporary = scratch / "tmp"
    job = Job(
        argv=("bash", "-c", command),
        cwd=str(cwd),
        env=tuple({**os.environ, **env, "TMPDIR": str(temporary)}.items()),
        scratch=str(scratch),
        directories=(str(temporary),),
        temporary=(str(temporary), *((confined.layers,) if confined.layers else ())),
        files=(),
        records=str(scratch),
        outputs=str(scratch),
        logs=str(scratch),
        sandbox=confined,
    )
    deadline = time.monotonic() + limit_s
    with Launched(job, Tally(None)) as launched:
        while not launched.ended:
            if cancel.is_set():
                msg = "Interrupted during --setup: nothing was measured."
                raise InterruptedByUserError(msg)
            if time.monotonic() > deadline:
                return f"--setup did not end within {limit_s / 60:.0f} minutes"
            launched.wait(POLL_S)
        launched.stop()
        code = launched.exit_code
        output = plain(launched.stdout.tail()) + "\n" + plain(launched.stderr.tail())
    for folder in made:
        if not any(folder.iterdir()):
            folder.rmdir()
    if launched.refused is not None:
        return f"--setup could not be started: {launched.refused}"
    if code == 0:
        return None
    tail = [line for line in output.splitlines() if line.strip()][-TAIL_LINES:]
    return f"--setup ended with exit code {code}: {chr(10).join(tail) or 'it wrote nothing'}"


def _make_folders(top: Path) -> list[Path]:
    made = [top / name for name in MADE_FOLDERS if not (top / name).exists()]
    for folder in made:
        folder.mkdir()
    return made


# --- isolation ----------------------------------------------------------------------------


def unprotected(cwd: Path) -> str:
    """Reach of base and head on this host, and why; empty where an isolation holds.

    Raises UsageError where GPU_ADVISOR_ISOLATION asks for one that does not hold.
    """
    offer = detect_isolation(str(cwd))
    if offer.kind != "guard":
        return ""
    return (
        "base and head can write to each other's files and to those that steer this job, and read "
        f"the environment it began with ({offer.why_not_better or ASKED_FOR})"
    )


def isolation_notes(cwd: Path, withheld: Sequence[str]) -> list[str]:
    """Notes for the report about isolation and withheld variables."""
    found = []
    if reach := unprotected(cwd):
        found.append(f"not isolated: {reach}")
    if withheld:
        found.append(f"withheld from base and head: {', '.join(withheld)} (--keep-env hands over)")
    if git(cwd, "config", "--local", "--get-regexp", r"^http\..*extraheader$"):
        found.append(
            "this checkout keeps a token in .git/config, which base and head can read: check it "
            "out with persist-credentials: false"
        )
    return found
