"""Supervisor of one command, between it and gpu-advisor.

It lays out files, enters the isolation, starts the command and adopts its orphans.
It takes all away on request, or when the parent is gone, even by kill -9.

Every trial waits for its start: standard library only, no pathlib. No import once the
program runs, which may have changed what is found.

stdin: a `Job` as one line of JSON; then `stop`. An end without it: the parent died.
stdout: events, a JSON object a line: `started` or `refused`, `exited`, `gone`.
"""

import binascii
import contextlib
import json
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator
from typing import Any

from advisor.sandbox import open_sandbox, scheduling
from advisor.sandbox.base import Sandbox
from advisor.sandbox.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    prctl,
    proc,
)
from advisor.sandbox.layers import remove_tree

TERM_GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL: multiprocessing's resource tracker needs it to unlink.

Judgement: shorter leaves shared memory behind, longer delays the end of programs that ignore
SIGTERM."""
KILL_GRACE_S = 5.0
"""Longest wait, in seconds, after SIGKILL.

A process in uninterruptible sleep is reported, not waited for. Judgement: shorter reports processes
that a busy host is still ending, longer holds up the next trial."""
REAPED_AT_ONCE = 256
"""Ended children that are awaited before anything else is looked at.

Judgement: a program that starts others all the time keeps the supervisor deaf to its stop if this
is large. If it is small, ended ones pile up."""
ROOM_FILES = 1
"""A file system may have room and no inode left, in which to make a file."""
ROOM_BYTES = 1 << 16
"""A disk with less room is full: a probe record would not fit."""
SPEC = "spec.json"
"""Instructions of the probe, in scratch."""


def main() -> None:
    """Run the job that the parent sends, and tell in JSON lines what becomes of it.

    The candidate's files are laid out behind the walls, so that the user's own stay as they
    are. What fails before the command starts is told with its stage, as the remedies differ.
    A dead parent ends the job as `stop` does; then the scratch folder goes, too, since nobody
    is left to read it.
    """
    control = Control()
    line = control.job_line()
    if line is None:  # the parent died before it sent a job
        return
    job: dict[str, Any] = json.loads(line)
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the command become ours
    sandbox = open_sandbox(job["sandbox"], job["cwd"])
    command: int | None = None
    stage = "start"
    try:
        scheduling.apply(job["scheduling"])
        stage = "scratch"
        lay_out(job)
        stage = "isolation"
        sandbox.enter()
        prctl(PR_SET_DUMPABLE, 0)  # by its open files the program would reach the host's
        stage = "layout"
        for path, content, original in job["candidates"]:
            sandbox.put(path, binascii.a2b_base64(content))
            with contextlib.suppress(OSError):
                os.chmod(path, stat.S_IMODE(os.stat(original).st_mode))
        stage = "start"
        command = start(job, sandbox)
        emit("started", pid=command, helpers=sorted(sandbox.helpers))
        while not control.ended:
            control.wait(sandbox)
            for pid, code in reaped():
                if pid == command:
                    emit("exited", code=code)
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        emit("refused", stage=stage, message=str(problem))
        while not control.ended:
            control.wait(sandbox)
    left = end_all(command, control, sandbox)
    sandbox.end()
    changes = sandbox.changes(os.path.join(job["scratch"], "results"))
    sandbox.leave()
    full = is_full(job["scratch"])
    clean_up(
        sandbox.laid,
        [*job["temporary"], *([job["scratch"]] if control.parent_died else [])],
    )
    emit("gone", left=left, changes=changes, full=full)


def emit(event: str, **facts: object) -> None:
    """Write one event line; ignore a dead parent."""
    line = json.dumps({"event": event, "clock": time.monotonic(), **facts}) + "\n"
    with contextlib.suppress(OSError):
        os.write(1, line.encode())


class Control:
    """What ends a job: a word of the parent, its death, or a signal.

    Signals also write into a pipe that `wait` watches, so that an ended child is reaped at
    once, and none that arrives just before the wait is missed.
    """

    def __init__(self) -> None:
        self.ended = False
        self.parent_died = False
        self._wake, wake_end = os.pipe()
        for end in (self._wake, wake_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)

    def _end(self, *_: object) -> None:
        self.ended = True

    def job_line(self) -> bytes | None:
        """Whole first line, or None."""
        chunks = []
        while chunk := os.read(0, 1 << 16):
            head, newline, rest = chunk.partition(b"\n")
            chunks.append(head)
            if newline:
                self.ended |= bool(rest)
                return b"".join(chunks)
        return None

    def wait(self, sandbox: Sandbox, seconds: float | None = None) -> None:
        """Wait for the parent, a child, isolation or timeout."""
        watched = [self._wake] if self.ended else [0, self._wake]
        listener = sandbox.listener
        if listener:
            watched.append(listener.fileno())
        ready, _, _ = select.select(watched, [], [], seconds)
        if listener and listener.fileno() in ready:
            listener.serve()
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if 0 in ready:  # the only word after the job is `stop`
            self.ended = True
            self.parent_died = not os.read(0, 4096)


def lay_out(job: dict[str, Any]) -> None:
    for folder in (job["scratch"], *job["directories"]):
        try:
            os.mkdir(folder)  # but no parent: it is gone where its maker was killed
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
    if job["spec"]:
        with open(os.path.join(job["scratch"], SPEC), "w") as file:
            file.write(job["spec"])


def is_full(folder: str) -> bool:
    with contextlib.suppress(OSError):
        space = os.statvfs(folder)
        no_bytes = space.f_blocks > 0 and space.f_bavail * space.f_frsize < ROOM_BYTES
        return no_bytes or (space.f_files > 0 and space.f_favail < ROOM_FILES)
    return False


def clean_up(laid: Iterable[str], folders: Iterable[str]) -> None:
    """Remove candidates laid beside their originals, and folders."""
    for path in laid:
        try:
            os.unlink(path)
        except IsADirectoryError:  # the program put one in its place
            remove_tree(path)
        except OSError:
            continue
    for folder in folders:
        remove_tree(folder)


def start(job: dict[str, Any], sandbox: Sandbox) -> int:
    """Start the command in a session tied to us."""
    process = subprocess.Popen(
        job["argv"],
        cwd=job["cwd"],
        env=job["env"],
        stdin=subprocess.DEVNULL,
        stdout=job["stdout_fd"],
        stderr=job["stderr_fd"],
        start_new_session=True,
        preexec_fn=lambda: _become_the_command(sandbox),  # noqa: PLW1509  there is one thread
    )
    process.returncode = 0  # reaped below, with everything else; never by subprocess
    for end in (job["stdout_fd"], job["stderr_fd"]):
        os.close(end)
    return process.pid


def _become_the_command(sandbox: Sandbox) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 1)  # its own /proc is its own again
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    sandbox.confine()


def reaped() -> Iterator[tuple[int, int]]:
    """Yield children that ended; of a program that starts them faster, some at a time."""
    with contextlib.suppress(ChildProcessError):
        for _ in range(REAPED_AT_ONCE):
            ended, status = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return
            yield ended, os.waitstatus_to_exitcode(status)


def end_all(command: int | None, control: Control, sandbox: Sandbox) -> list[int]:
    """Terminate, then kill, all; return surviving pids."""
    begun, pause_s = time.monotonic(), 0.01
    asked: set[int] = set()
    while True:
        list(reaped())
        alive = family(command) - sandbox.helpers
        if not alive:
            return []
        elapsed = time.monotonic() - begun
        if elapsed > TERM_GRACE_S + KILL_GRACE_S:
            return sorted(alive)
        if elapsed > TERM_GRACE_S:
            sandbox.end()  # where it can end all at once, whatever they start meanwhile
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if elapsed > TERM_GRACE_S:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in asked:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # else a stopped process cannot handle it
        asked |= alive
        control.ended = True
        control.wait(sandbox, pause_s)  # a child's end wakes this at once
        pause_s = min(2 * pause_s, 0.1)


def family(command: int | None) -> set[int]:
    """Living descendants and members of the command's group.

    Grown from the table of all processes until nothing is added, since a child may stand before
    its parent in it. One that moved to another parent is still known by the command's group.
    """
    table = process_table()
    ours = {os.getpid()}
    grown = True
    while grown:
        processes = {
            pid
            for pid, (parent, group, _) in table.items()
            if parent in ours or group == command
        }
        grown = not processes <= ours
        ours |= processes
    return {
        pid for pid in ours - {os.getpid()} if pid in table and table[pid][2] not in "ZX"
    }


def process_table() -> dict[int, tuple[int, int, str]]:
    """Parent, group and state of each process of the host."""
    table = {}
    for name in filter(str.isdecimal, os.listdir(proc(""))):
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(proc(f"{name}/stat"), errors="replace") as file,
        ):
            # the command's name, in parentheses, may hold spaces and parentheses
            state, parent, group = file.read().rpartition(")")[2].split()[:3]
            table[int(name)] = int(parent), int(group), state
    return table
