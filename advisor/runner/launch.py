"""Start and end of a job through its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from advisor.runner import supervisor
from advisor.runner.output import Stream, Tally

if TYPE_CHECKING:
    from types import TracebackType

    from advisor.runner.job import Job

HERE = Path(__file__).resolve().parent
START = "import sys; sys.path += sys.argv[1:3]; import supervisor; sys.exit(supervisor.main())"
SUPERVISOR = (
    sys.executable, "-I", "-S", "-B", "-c", START, str(HERE), str(HERE.parents[1]),
)  # fmt: skip
"""As a module, whose compiled code is kept: a script would be compiled for every trial. Of the
package it finds the rooms below, and does not import its own."""
STOP_LIMIT_S = supervisor.TERM_GRACE_S + supervisor.KILL_GRACE_S + 10.0
"""Longest wait for the supervisor to have taken everything away."""


class Launched:
    """Command under a supervisor, ended with the context."""

    def __init__(self, job: Job, tally: Tally) -> None:
        self.job = job
        self.started = time.time()
        self.pid: int | None = None
        """The command's process; None until it was started, or if it could not be."""
        self.exit_code: int | None = None
        """Exit code of the command, or minus its signal."""
        self.exited = False
        self.refused: str | None = None
        """Why the command could not be started."""
        self.refused_stage: str | None = None
        """scratch: the trial's own folder could not be made; layout: the candidate could not;
        isolation: it does not hold any more; start: the command is not there."""
        self.left: tuple[int, ...] = ()
        """Processes that would not go."""
        self.changes: dict[str, Any] | None = None
        """Changes by the program, see `Sandbox.changes`; None if unknown."""
        self.full = False
        """The disk of the trial's own folder had no room any more at its end."""
        self._buffer = b""
        self._gone = False
        """The supervisor's pipe has ended."""
        self._clean = False
        """True after the supervisor reported a complete cleanup."""
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                # the scratch path identifies the supervisor in process lists
                [*SUPERVISOR, job.scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C and a closed terminal reach the parent alone
                pass_fds=(out_write, err_write),
                cwd="/",
            )
        except OSError:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        logs, scratch = Path(job.logs), Path(job.scratch)
        self.stdout = Stream(out_read, logs / "stdout.log", tally, scratch)
        self.stderr = Stream(err_read, logs / "stderr.log", tally, scratch)
        self._send(job.line(stdout_fd=out_write, stderr_fd=err_write))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def supervisor_pid(self) -> int:
        """Root of the process tree to be sampled."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Return True if the command or its supervisor ended."""
        return self.exited or self.refused is not None or self._gone

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` for the supervisor."""
        events = self._process.stdout
        assert events is not None
        if self._gone:
            return
        ready, _, _ = select.select([events], [], [], seconds)
        if not ready:
            return
        chunk = os.read(events.fileno(), 1 << 16)
        if not chunk:
            self._gone = True
            return
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a live process of the trial."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

    def stop(self) -> None:
        """End every process and remove files; may repeat."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        self._send(b"stop\n")
        deadline = time.monotonic() + STOP_LIMIT_S
        while not self._gone and time.monotonic() < deadline:
            self.wait(0.5)
        if not self._clean:  # someone killed the supervisor, or it is stuck
            self._process.kill()
            self._kill_group()
        for stream in (self.stdout, self.stderr):
            stream.join(0.5)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _handle(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "started":
                self.pid, self.started = event["pid"], event["time"]
            case "exited":
                self.exit_code, self.exited = event["code"], True
            case "refused":
                self.refused, self.refused_stage = event["message"], event["stage"]
            case "gone":
                self.left, self._clean = tuple(event["left"]), True
                self.changes, self.full = event["changes"], event["full"]
            case other:
                msg = f"the supervisor sent an unknown event: {other}"
                raise AssertionError(msg)

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(message)
            self._process.stdin.flush()

    def _kill_group(self) -> None:
        """Kill the command's session when its supervisor is gone."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        for file in self.job.files:
            if not file.keep and not file.over:
                Path(file.path).unlink(missing_ok=True)
        for folder in self.job.temporary:
            shutil.rmtree(folder, ignore_errors=True)
