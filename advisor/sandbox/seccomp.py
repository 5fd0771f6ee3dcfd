"""Filter of system calls: what Landlock and namespaces leave open is denied, or decided here.

A filter runs in the kernel and sees numbers, never what they point to. It denies by number
what no program of ours needs. For calls that name a file or a process it stops the caller and
asks the supervisor, which decides and acts (`Deputy`). All other calls cost nothing.

A path may not be checked and then left to the kernel: another thread changes it in between.
So a deputy opens the file, checks what was opened, and acts on that.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from advisor.sandbox import kernel

SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
"""Operation and flag of seccomp(2): filter from now on, and give a descriptor to decide by."""
ALLOW, NOTIFY, ERROR = 0x7FFF_0000, 0x7FC0_0000, 0x0005_0000
"""Answers of a filter; the number of an error is added to ERROR."""
CONTINUE = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE of `linux/seccomp.h`: the kernel does the call itself.

It does so with what the arguments point to by then."""
RECEIVE, SEND = 0xC050_2100, 0xC018_2101
"""ioctl(2) requests of a listener: take the next stopped call, and answer one."""
NOTICE = struct.Struct("=QIIiIQ6Q")
"""seccomp_notif: id, pid, flags, number, architecture, instruction, six arguments."""
ANSWER = struct.Struct("=QqiI")
"""seccomp_notif_resp: id, value, error, flags."""

ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
"""The kernel's number for each."""
X32 = 0x4000_0000
"""Bit in the number of a call by x86_64's other interface: __X32_SYSCALL_BIT of `asm/unistd.h`."""

LOAD, MASK, RETURN = 0x20, 0x54, 0x06
JUMP_IF_EQUAL, JUMP_IF_AT_LEAST = 0x15, 0x35
"""Of classic BPF: load a word of `seccomp_data`, and with a constant, return, conditional jumps."""
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
"""Offsets in seccomp_data; each argument has eight bytes, the low word first."""

TEXT_BYTES = 4096
"""Longest string read from the program, in bytes: the kernel takes no longer path.

That is PATH_MAX of `linux/limits.h`."""
TOLD = {
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EBADF, errno.E2BIG,
    errno.EOPNOTSUPP,
}  # fmt: skip
"""Refusals that the program would hear from the kernel as well; any other is EACCES."""


class Test(NamedTuple):
    """Holds if the low word of an argument, masked, is `value` (or is not)."""

    argument: int
    value: int
    mask: int = 0xFFFF_FFFF
    differs: bool = False


class Call(NamedTuple):
    """System call by its numbers, denied with `error` or decided by `act`, where all tests hold."""

    x86_64: int | None
    aarch64: int | None
    error: int | None = None
    act: "Deputy | None" = None
    tests: tuple[Test, ...] = ()


class SyscallNotification(NamedTuple):
    """System call of a thread that waits for an answer."""

    id: int
    pid: int
    call: Call
    arguments: tuple[int, ...]

    def word(self, place: int) -> int:
        """Return an argument as the 32 bits that the kernel looks at."""
        return self.arguments[place] & 0xFFFF_FFFF

    def signed(self, place: int) -> int:
        return ctypes.c_int32(self.word(place)).value

    def memory(self, address: int, size: int) -> bytes:
        """Read up to `size` bytes of the program's memory. Raises OSError."""
        with open(kernel.proc(f"{self.pid}/mem"), "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)

    def text(self, address: int, limit: int = TEXT_BYTES) -> bytes:
        """Read a string of the program's memory; NULL is empty. Raises OSError."""
        return self.memory(address, limit).partition(b"\0")[0] if address else b""


Deputy = Callable[[SyscallNotification], int | None]
"""Decides on a call: an error number, 0 where it was done, None to let the kernel do it.

None is right only where all that was checked are plain numbers: these cannot change any more.
Any OSError or ValueError of a deputy denies the call.
"""


class SyscallListener:
    """Filter around one command, and the decisions on its calls.

    The filter has to be put in by the process that becomes the command, since it holds for that
    one and its children, while the decisions are made outside. So the descriptor of the listener
    is sent through a pair of sockets that both had before the fork. All decisions are made one by
    one, between other work of the supervisor: one that waited would stop every other caller.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        machine = os.uname().machine
        self._architecture = ARCHITECTURES.get(machine)
        self._calls = [call for call in calls if getattr(call, machine, None) is not None]
        self._decided: dict[int, Call] = {
            getattr(call, machine): call for call in self._calls if call.act
        }
        self._here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._here.setblocking(False)
        self._listener: int | None = None

    def fileno(self) -> int:
        """Descriptor of the listener, once received."""
        return self._here.fileno() if self._listener is None else self._listener

    def close(self) -> None:
        self._here.close()
        self._there.close()

    def confine(self, *, decides: bool = True) -> None:
        """Filter this process's calls, and those of all that it starts. Raises OSError.

        A kernel takes one listener for a process. Where another listens already, such as a
        container engine, `decides=False` denies what needs no decision.
        """
        machine = os.uname().machine
        if self._architecture is None:
            raise OSError(errno.ENOSYS, f"no filter of system calls for {machine}")
        calls = [call for call in self._calls if decides or call.error is not None]
        rules = [(getattr(call, machine), call) for call in calls]
        program = _program(self._architecture, rules)
        lines = ctypes.create_string_buffer(program, len(program))
        head = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(lines))
        listens = decides and bool(self._decided)
        flags = NEW_LISTENER if listens else 0
        listener = kernel.syscall("seccomp", SET_MODE_FILTER, flags, head)
        if listens:
            socket.send_fds(self._there, [b"l"], [listener])
            os.close(listener)

    def serve(self) -> None:
        """Read the listener, or one call."""
        if self._listener is None:
            with contextlib.suppress(OSError):
                _, (self._listener, *_), _, _ = socket.recv_fds(self._here, 1, 1)
            return
        waits = select.poll()
        waits.register(self._listener, select.POLLIN)
        ready = waits.poll(0)
        if not ready:
            return
        if not ready[0][1] & select.POLLIN:  # no caller is left
            os.close(self._listener)
            self._listener = None
            return
        buffer = bytearray(NOTICE.size)
        with contextlib.suppress(OSError):  # it was killed meanwhile
            fcntl.ioctl(self._listener, RECEIVE, buffer)
            id_, pid, _, number, _, _, *arguments = NOTICE.unpack(buffer)
            call = self._decided[number]
            error = error_of(SyscallNotification(id_, pid, call, tuple(arguments)))
            flags = CONTINUE if error is None else 0
            fcntl.ioctl(self._listener, SEND, ANSWER.pack(id_, 0, -(error or 0), flags))


def error_of(notice: SyscallNotification) -> int | None:
    """Return the answer to a call; one that cannot be decided is denied."""
    assert notice.call.act is not None
    try:
        return notice.call.act(notice)
    except OSError as problem:
        return problem.errno if problem.errno in TOLD else errno.EACCES
    except ValueError:
        return errno.EACCES


def _program(architecture: int, rules: Sequence[tuple[int, Call]]) -> bytes:
    """Return the filter, in classic BPF: for each rule its number and tests, then its answer.

    Calls by other interfaces (32 bits, x32) have other numbers for the same deeds. They are
    refused as unknown before any rule is asked, or each rule could be walked around by them.

    Jumps of classic BPF are relative and go forward only. A rule's tests are therefore laid out
    from the last to the first: each then knows how many lines lie between it and the rule's end.
    """
    foreign = (RETURN, 0, 0, ERROR | errno.ENOSYS)
    lines = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 1, 0, architecture),
        foreign,
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_AT_LEAST, 0, 1, X32),
        foreign,
    ]
    for number, call in rules:
        inside: list[tuple[int, int, int, int]] = []
        answer = NOTIFY if call.error is None else ERROR | call.error
        for test in reversed(call.tests):
            after = len(inside) + 1  # over the rest of the tests and the answer
            jumps = (after, 0) if test.differs else (0, after)
            inside = [
                (LOAD, 0, 0, ARGUMENTS_AT + 8 * test.argument),
                (MASK, 0, 0, test.mask),
                (JUMP_IF_EQUAL, *jumps, test.value),
                *inside,
            ]
        inside.append((RETURN, 0, 0, answer))
        lines.append((JUMP_IF_EQUAL, 0, len(inside) + bool(call.tests), number))
        lines += inside
        if call.tests:  # the tests loaded arguments over it
            lines.append((LOAD, 0, 0, NUMBER_AT))
    lines.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
