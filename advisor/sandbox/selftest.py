"""Self-test of one kind of isolation: each wall that the policy promises is tried from inside.

Run as `python -I -S selftest.py`, standard library only. stdin: {"policy": a SandboxPolicy, "cwd",
"hidden": a folder that the policy hides, or "", "port": of a server of the caller's}. stdout: why
it does not hold, or null.

A program is forked as a trial's is, confined, and tries to get through each wall, while this
process decides on its calls as a supervisor does.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from advisor.sandbox import kernel, open_sandbox
from advisor.sandbox.base import Sandbox

KEY = "key"
"""Name of the hidden file."""
WAIT_S = 10.0
"""Longest wait, in seconds, for a word of the forked program.

Judgement: shorter gives up walls that hold on a busy host. Longer than `ATTEMPT_LIMIT_S` in
`capabilities.py` ends the test without an answer of its own."""
LONGEST_NAME = 100
"""Bytes of a socket's name; a longer one is reached by /proc/self/fd.

The kernel takes 107: UNIX_PATH_MAX of `linux/un.h` without the ending zero (unix(7))."""


class Outside(NamedTuple):
    """What the program must not reach, made before it starts."""

    cwd: str
    hidden: str
    pid: int
    abstract: str
    """Name of a socket without a file."""
    port: int
    """Port of a server on this host's own loopback; 0 without one."""
    ipc: int
    """Number of the space of System V's memory and of queues."""
    device: int = 0
    """Number of the file system of `cwd`; 0 where it may not be written."""


def problem_of(policy: dict[str, Any], cwd: str, hidden: str, port: int = 0) -> str | None:
    """Enter the sandbox and try each wall; return what was wrong."""
    with contextlib.ExitStack() as stack:
        outside = _outside(stack, cwd, hidden, port)
        read, write = os.pipe()
        sandbox = open_sandbox(policy, cwd)
        try:
            sandbox.enter()
            child = os.fork()
            if not child:
                _be_the_program(write, sandbox, policy, outside)
            os.close(write)
            said = _heard(read, sandbox)
            if said is None:  # nobody decides on its calls any more: it would wait for ever
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except OSError as problem:
            return _words(problem)
        finally:
            sandbox.end()
            with contextlib.suppress(OSError):
                sandbox.leave()
        return said or None if said is not None else "the program in it ended early"


def _outside(stack: contextlib.ExitStack, cwd: str, hidden: str, port: int) -> Outside:
    abstract = f"gpu-advisor-{os.getpid()}-{os.urandom(4).hex()}"
    if hidden:
        with open(os.path.join(hidden, KEY), "w"):
            pass
        for address in (_socket_in(hidden), "\0" + abstract):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen()
    ipc = os.stat("/proc/self/ns/ipc").st_ino
    device = os.stat(cwd).st_dev if os.access(cwd, os.W_OK) else 0
    return Outside(cwd, hidden, os.getpid(), abstract, port, ipc, device)


def _socket_in(folder: str) -> str:
    """Return a name of the hidden socket that fits into an address. Raises OSError."""
    name = os.path.join(folder, "socket")
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    return f"/proc/self/fd/{os.open(folder, os.O_PATH)}/socket"


def _be_the_program(
    write: int, sandbox: Sandbox, policy: dict[str, Any], outside: Outside
) -> NoReturn:
    try:
        said = _from_inside(sandbox, policy, outside)
    except BaseException as problem:  # it must not go on as its parent
        said = f"{type(problem).__name__}: {problem}"
    os.write(write, said.encode(errors="replace"))
    os._exit(0)


def _heard(read: int, sandbox: Sandbox) -> str | None:
    """Decide on the program's calls until it has spoken; None if it did not."""
    said = b""
    listener = sandbox.listener
    while True:
        watched = [read, listener.fileno()] if listener else [read]
        ready, _, _ = select.select(watched, [], [], WAIT_S)
        if not ready:
            return None
        if read in ready:
            chunk = os.read(read, 4096)
            said += chunk
            if not chunk:
                return said.removesuffix(b"\n").decode() if said else None
        elif listener:
            listener.serve()


def _from_inside(sandbox: Sandbox, policy: dict[str, Any], outside: Outside) -> str:
    """Return the first wall that does not stand, in words; a line's end if all do."""
    try:
        os.chdir(outside.cwd)
        sandbox.confine()
        if refused := _own_files(policy, outside):
            return refused
    except OSError as problem:
        return _words(problem)
    for wall, gets_through in _walls(policy, outside):
        try:
            through = gets_through()
        except OSError:
            through = False
        if through:
            return f"{wall} went through"
    return "\n"


def _words(problem: OSError) -> str:
    named = f"{problem.filename}: " if problem.filename else ""
    return f"{named}{problem.strerror or problem}"


def _own_files(policy: dict[str, Any], outside: Outside) -> str:
    """Return what an overlay denies although the host allows it: it cannot copy up a folder."""
    if policy["kind"] == "landlock" or not outside.device:
        return ""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".gpu-advisor-attempt-", dir=outside.cwd))
    except OSError as problem:
        return f"nothing can be made in {outside.cwd}: {problem.strerror or problem}"
    return ""


Attempt = Callable[[], bool]


def _walls(policy: dict[str, Any], outside: Outside) -> Iterator[tuple[str, Attempt]]:
    """Yield what the policy promises to stop, and an attempt: True or no error is through."""
    landlock = policy["kind"] == "landlock"
    if landlock:
        yield "a write that it should deny", lambda: _makes(policy["layers"])
        if not policy["undecided"]:
            yield "a change of a mode", lambda: _done(os.chmod, policy["layers"], 0o700)
            yield "a change of a time", lambda: _done(os.utime, policy["layers"])
            yield "io_uring", lambda: _call(425, 425, 1, bytearray(120)) >= 0
    elif outside.device:  # it would be that of a layer
        yield "a write to the project", lambda: os.stat(".").st_dev == outside.device
    yield (
        "a write to the kernel's settings",
        lambda: _opens("/proc/sys/kernel/core_pattern"),
    )
    yield "a capability", _is_too_capable
    if not policy["foreign"]:
        return
    hidden = outside.hidden
    yield (
        "a read of a hidden file",
        lambda: _done(os.stat, f"{hidden}/{KEY}") and _reads(hidden),
    )
    for kind, name in (
        ("hidden socket", f"{hidden}/socket"),
        ("socket without a file", "\0" + outside.abstract),
    ):
        yield f"a connection to a {kind}", lambda name=name: _connects(name)  # type: ignore[misc]
    if not policy["network"] and outside.port:
        yield "a connection to the host", lambda: _connects_near(outside.port)
    if os.getpid() != outside.pid:  # whose number may be one in a process space of its own
        yield "a signal to a process outside", lambda: _done(os.kill, outside.pid, 0)
        cpus = os.sched_getaffinity(0)
        yield "another's CPUs", lambda: _done(os.sched_setaffinity, outside.pid, cpus)
    separate_ipc = os.stat("/proc/self/ns/ipc").st_ino != outside.ipc
    yield (
        "memory shared by number",
        lambda: not separate_ipc and _call(29, 194, 0, 4096, 0o1600) >= 0,
    )
    yield "a key ring", lambda: _call(250, 219, 0, -4, 1) >= 0


def _done(act: Callable[..., object], *arguments: object) -> bool:
    act(*arguments)
    return True


def _makes(folder: str) -> bool:
    os.rmdir(tempfile.mkdtemp(prefix=".gpu-advisor-attempt-", dir=folder))
    return True


def _opens(path: str) -> bool:
    os.close(os.open(path, os.O_WRONLY))
    return True


def _reads(folder: str) -> bool:
    with open(os.path.join(folder, KEY), "rb"):
        return True


def _connects(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
    return True


def _connects_near(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True


def _is_too_capable() -> bool:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        capabilities = next(
            int(line.split()[1], 16) for line in file if line.startswith("CapBnd:")
        )
    return os.geteuid() == 0 and bool(capabilities & ~kernel.KEPT)


def _call(x86_64: int, aarch64: int, *arguments: int | bytearray) -> int:
    number = {"x86_64": x86_64, "aarch64": aarch64}.get(os.uname().machine)
    if number is None:
        return -1
    words = [
        ctypes.c_long(argument)
        if isinstance(argument, int)
        else (ctypes.c_char * len(argument)).from_buffer(argument)
        for argument in arguments
    ]
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *words))


if __name__ == "__main__":
    print(json.dumps(problem_of(**json.load(sys.stdin))))
