"""The --setup command: run once in each arm before anything is measured."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from advisor.errors import InterruptedByUserError
from advisor.runner.job import Job
from advisor.runner.launch import Launched
from advisor.runner.output import Tally, plain
from advisor.sandbox.policy import SandboxPolicy

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

TAIL_LINES = 20
POLL_S = 0.2
FREE = SandboxPolicy()


def set_up(
    cwd: Path,
    command: str,
    env: Mapping[str, str],
    *,
    scratch: Path,
    limit_s: float,
    cancel: threading.Event,
    confined: SandboxPolicy = FREE,
) -> str | None:
    """Run the shell string `command` in `cwd`; None if it went well, else why not.

    Nothing that it started outlives it, whatever becomes of us. Raises InterruptedByUserError
    once `cancel` is set.
    """
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
        said = plain(launched.stdout.tail()) + "\n" + plain(launched.stderr.tail())
    if launched.refused is not None:
        return f"--setup could not be started: {launched.refused}"
    if code == 0:
        return None
    tail = [line for line in said.splitlines() if line.strip()][-TAIL_LINES:]
    said = "\n".join(tail) or "it wrote nothing"
    return f"--setup ended with exit code {code}: {said}"
