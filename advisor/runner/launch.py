"""Start and end of a job through its supervisor."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from advisor import clock
from advisor.runner import supervisor
from advisor.runner.job import Job
from advisor.runner.output import NOTHING, Stream, Tally, Wanted

ROOT = str(Path(__file__).resolve().parents[2])
START = "import sys; sys.path += sys.argv[1:2]; from advisor.runner.supervisor import main; main()"
SUPERVISOR = (sys.executable, "-I", "-S", "-B", "-c", START, ROOT)
"""A module, whose compiled code is kept: a script is compiled every trial."""
STOP_LIMIT_S = supervisor.TERM_GRACE_S + supervisor.KILL_GRACE_S + 10.0
"""Longest wait, in seconds, for the supervisor to remove everything.

Judgement: it needs both graces, and ten seconds for files on a slow disk. Shorter kills one that
still works, longer holds up the call for one that hangs."""
DRAIN_S = 0.5
"""Longest wait, in seconds, for the rest of an output.

A process that got away may keep its pipe open. Judgement: shorter loses last lines on a busy host,
longer delays the end of each such trial."""


class Launched:
    """Command under a supervisor, ended with the context."""

    def __init__(
        self, job: Job, unit_regex: str | None = None, wanted: Wanted = NOTHING
    ) -> None:
        self.job, self.tally = job, Tally(unit_regex)
        self.started = clock.now()
        self.pid: int | None = None
        """The command's process; None until it started, or if it could not."""
        self.helpers: tuple[int, ...] = ()
        """Processes of the sandbox beside the command."""
        self.exit_code: int | None = None
        """Exit code of the command, or minus its signal."""
        self.refused: str | None = None
        """Sentence on why the command was not started; None if it was, or is about to be."""
        self.refused_stage: str | None = None
        """scratch (the trial's own folder), layout (the candidate), isolation or start."""
        self.left: tuple[int, ...] | None = None
        """Processes that outlived the end; None until the supervisor has told."""
        self.changes: dict[str, Any] | None = None
        """Changes by the program, see `Sandbox.changes`; None if unknown."""
        self.full = False
        """The disk of the trial's own folder was full at its end."""
        self._buffer = b""
        self._gone = False
        (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [*SUPERVISOR, job.scratch],  # identifies it in process lists
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C and a closed terminal reach the parent alone
            pass_fds=(out_write, err_write),
            cwd="/",
        )
        os.close(out_write)
        os.close(err_write)
        self.supervisor_pid = self._process.pid
        """Root of the sampled process tree."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._control, self._events = self._process.stdin, self._process.stdout
        self.stdout = Stream(out_read, "stdout", self.tally, wanted)
        self.stderr = Stream(err_read, "stderr", self.tally, wanted)
        message = asdict(job) | {"stdout_fd": out_write, "stderr_fd": err_write}
        self._send(json.dumps(message).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ended(self) -> bool:
        """True once the command has ended, was never started, or its supervisor is gone."""
        return self.exit_code is not None or self.refused is not None or self._gone

    def wait(self, seconds: float) -> None:
        """Take in what the supervisor tells next, if it does within `seconds`."""
        if self._gone or not select.select([self._events], [], [], seconds)[0]:
            return
        chunk = os.read(self._events.fileno(), 1 << 16)
        self._gone = not chunk
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            match event["event"]:
                case "started":
                    self.pid, self.started = event["pid"], clock.EPOCH + event["clock"]
                    self.helpers = tuple(event["helpers"])
                case "exited":
                    self.exit_code = event["code"]
                case "refused":
                    self.refused, self.refused_stage = event["message"], event["stage"]
                case _:  # gone
                    self.left, self.full = tuple(event["left"]), event["full"]
                    self.changes = event["changes"]

    def stop(self) -> None:
        """End every process and remove files; may repeat."""
        if self._control.closed:
            return
        self._send(b"stop\n")
        deadline = time.monotonic() + STOP_LIMIT_S
        while not self._gone and time.monotonic() < deadline:
            self.wait(0.5)
        if self.left is None:
            self._clean_up()
        for stream in (self.stdout, self.stderr):
            stream.join(DRAIN_S)
        for pipe in (self._control, self._events):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._control.write(message)
            self._control.flush()

    def _clean_up(self) -> None:
        """Do the work of a killed or stuck supervisor."""
        self._process.kill()
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        beside = not self.job.sandbox.throws_away and self.refused is None
        laid = [path for path, _, _ in self.job.candidates if beside]
        supervisor.clean_up(laid, self.job.temporary)
