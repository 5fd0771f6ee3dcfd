"""Decisions on system calls that need user space.

Landlock knows no modes, owners, times and attributes. An unprivileged overlay cannot rename
folders of the lower layer. Other calls cost nothing.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import shutil
import socket
import stat
import struct
from collections.abc import Callable
from typing import NamedTuple

from advisor.sandbox import kernel
from advisor.sandbox.path_policy import is_within

SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
ALLOW, NOTIFY = 0x7FFF_0000, 0x7FC0_0000
CONTINUE = 1
RECEIVE, SEND = 0xC050_2100, 0xC018_2101
NOTICE = struct.Struct("=QIIiIQ6Q")
"""seccomp_notif: id, pid, flags, number, architecture, instruction, six arguments."""
ANSWER = struct.Struct("=QqiI")
"""seccomp_notif_resp: id, value, error, flags."""
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
HERE = 0xFFFF_FF9C
"""AT_FDCWD, as an unsigned word."""
NO_FOLLOW = 0x100
PATH_BYTES = 4096

ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
"""The kernel's number for each."""


class Call(NamedTuple):
    """System call numbers and their path arguments."""

    x86_64: int | None
    aarch64: int | None
    folder: int | None = None
    """Descriptor of the folder of `path`; without one of the file itself."""
    path: int | None = None
    flags: int | None = None
    follows: bool = True


METADATA = (
    Call(90, None, path=0),  # chmod
    Call(91, 52, folder=0),  # fchmod
    Call(268, 53, folder=0, path=1),  # fchmodat
    Call(452, 452, folder=0, path=1, flags=3),  # fchmodat2
    Call(92, None, path=0),  # chown
    Call(93, 55, folder=0),  # fchown
    Call(94, None, path=0, follows=False),  # lchown
    Call(260, 54, folder=0, path=1, flags=4),  # fchownat
    Call(132, None, path=0),  # utime
    Call(235, None, path=0),  # utimes
    Call(261, None, folder=0, path=1),  # futimesat
    Call(280, 88, folder=0, path=1, flags=3),  # utimensat
    Call(188, 5, path=0),  # setxattr
    Call(189, 6, path=0, follows=False),  # lsetxattr
    Call(190, 7, folder=0),  # fsetxattr
    Call(197, 14, path=0),  # removexattr
    Call(198, 15, path=0, follows=False),  # lremovexattr
    Call(199, 16, folder=0),  # fremovexattr
    Call(463, 463, folder=0, path=1, flags=2),  # setxattrat
    Call(466, 466, folder=0, path=1, flags=2),  # removexattrat
)
RENAMES = (
    Call(82, None, path=0),  # rename
    Call(264, 38, folder=0, path=1),  # renameat
    Call(316, 276, folder=0, path=1, flags=4),  # renameat2
)


class SyscallNotification(NamedTuple):
    """System call of a thread waiting for an answer."""

    id: int
    pid: int
    call: Call
    arguments: tuple[int, ...]

    def place(self, folder: int | None, path: int | None, *, follows: bool = True) -> str:
        """Return the resolved file of two arguments. Raises OSError."""
        base = "cwd"
        if folder is not None and self.arguments[folder] & 0xFFFF_FFFF != HERE:
            base = f"fd/{self.arguments[folder] & 0xFFFF_FFFF}"
        name = "" if path is None else self.text(self.arguments[path], PATH_BYTES)
        if not name.startswith("/"):
            start = os.readlink(f"/proc/{self.pid}/{base}")
            if not start.startswith("/") or start.endswith(" (deleted)"):
                return ""
            name = os.path.join(start, name) if name else start
        elif name.startswith("/proc/self/"):
            name = f"/proc/{self.pid}/{name.removeprefix('/proc/self/')}"
        if follows:
            return os.path.realpath(name)
        parent, last = os.path.split(name.rstrip("/"))
        return os.path.join(os.path.realpath(parent), last)

    def text(self, address: int, limit: int) -> str:
        """Read a string of the program's memory; NULL is empty."""
        if not address:
            return ""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return os.fsdecode(memory.read(limit).partition(b"\0")[0])


class SyscallListener:
    """Listener for `calls` of one command, where allowed.

    `judge` returns None to leave it to the kernel, 0 when done, else an error number.
    """

    def __init__(
        self, calls: tuple[Call, ...], judge: Callable[[SyscallNotification], int | None]
    ) -> None:
        machine = os.uname().machine
        self._architecture = ARCHITECTURES.get(machine)
        self._calls: dict[int, Call] = {
            getattr(call, machine): call for call in calls if getattr(call, machine, None)
        }
        self._judge = judge
        self._here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._here.setblocking(False)
        self._listener: int | None = None

    def fileno(self) -> int:
        """Descriptor of the listener, once received."""
        return self._here.fileno() if self._listener is None else self._listener

    def close(self) -> None:
        self._here.close()
        self._there.close()

    def confine(self) -> None:
        """Report this process's calls to the listener."""
        if self._architecture is None:
            return
        program = _program(self._architecture, tuple(self._calls))
        lines = ctypes.create_string_buffer(program, len(program))
        head = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(lines))
        with contextlib.suppress(OSError):  # another listens, or it is forbidden
            listener = kernel.syscall("seccomp", SET_MODE_FILTER, NEW_LISTENER, head)
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
            call = self._calls[number]
            error = self.error_of(SyscallNotification(id_, pid, call, tuple(arguments)))
            flags = CONTINUE if error is None else 0
            fcntl.ioctl(self._listener, SEND, ANSWER.pack(id_, 0, -(error or 0), flags))

    def error_of(self, notice: SyscallNotification) -> int | None:
        try:
            return self._judge(notice)
        except (OSError, ValueError):  # its path is unreadable: it could lead anywhere
            return errno.EACCES


def _program(architecture: int, numbers: tuple[int, ...]) -> bytes:
    lines = [
        (LOAD, 0, 0, 4),
        (JUMP_IF_EQUAL, 0, len(numbers) + 1, architecture),
        (LOAD, 0, 0, 0),
    ]
    for place, number in enumerate(numbers):
        lines.append((JUMP_IF_EQUAL, len(numbers) - place, 0, number))
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def rename_folder(notice: SyscallNotification) -> int | None:
    """Rename a lower-layer folder by copying; None leaves it to the kernel."""
    call = notice.call
    if call.flags is not None and notice.arguments[call.flags]:
        return None
    two = (2, 3) if call.folder is not None else (None, 1)
    try:
        old = notice.place(call.folder, call.path, follows=False)
        new = notice.place(*two, follows=False)
        if not stat.S_ISDIR(os.lstat(old).st_mode) or is_within(os.path.realpath(new), old):
            return None
    except (OSError, ValueError):
        return None
    try:
        os.rename(old, new)
    except OSError as problem:  # only this answer can be bettered
        return _moved(old, new) if problem.errno == errno.EXDEV else None
    return 0


def _moved(old: str, new: str) -> int:
    try:
        if os.path.lexists(new):
            os.rmdir(new)
        shutil.copytree(old, new, symlinks=True)
        shutil.rmtree(old)
    except OSError as problem:  # shutil.Error has no number
        return problem.errno or errno.EIO
    return 0
