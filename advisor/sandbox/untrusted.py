"""Walls around foreign code: folders, sockets, network."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.sandbox import kernel
from advisor.sandbox.path_policy import around, is_within
from advisor.sandbox.seccomp import Call, SyscallNotification

CONNECT = Call(42, 203)
ADDRESS_BYTES = 110
"""Longest address of a socket in the file tree."""
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41


def start_loopback() -> None:
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_,
    ):
        fcntl.ioctl(any_, SET_FLAGS, struct.pack("16sH14x", b"lo", UP_AND_RUNNING))


def hide(root: str, policy: Mapping[str, Any]) -> None:
    """Hide folders below `root` except selected parts."""
    hidden = [path for path in policy["hidden"] if os.path.isdir(root + path)]
    opened = []
    for path in sorted({*policy["shown"], *policy["passes"]}):
        if any(is_within(path, each) for each in hidden):
            with contextlib.suppress(OSError):
                opened.append((path, os.open(root + path, os.O_PATH)))
    for path in hidden:
        mode = stat.S_IMODE(os.stat(root + path).st_mode)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", root + path, "tmpfs", flags, f"mode={mode:o}")
    for path, handle in opened:
        target = root + path
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
        if not is_folder:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        kernel.bind(f"/proc/self/fd/{handle}", target, deep=True)
        os.close(handle)


def readable(policy: Mapping[str, Any]) -> tuple[str, ...]:
    """Return readable places; empty without hidden ones."""
    if not policy.get("hidden"):
        return ()
    return (*around(map(os.path.realpath, policy["hidden"])), *policy["shown"])


def connect(notice: SyscallNotification, allowed: Sequence[str]) -> int | None:
    """Connect an allowed socket in place of the program."""
    number = notice.arguments[0] & 0xFFFF_FFFF
    with socket.socket(fileno=_copied_descriptor(notice.pid, number)) as own:
        if own.family != socket.AF_UNIX:
            return None
        _, address, size = notice.arguments[:3]  # its family, two bytes long, comes first
        name = notice.text(address + 2, max(0, min(size, ADDRESS_BYTES) - 2))
        if not name:  # of the abstract name space, where no folder is its own
            return errno.EACCES
        folder = os.readlink(f"/proc/{notice.pid}/cwd")
        path = os.path.realpath(os.path.join(folder, name))
        if not any(is_within(path, each) for each in allowed):
            return errno.EACCES
        try:
            # not by the kernel: a thread may have changed the address by now
            own.connect(path)
        except OSError as problem:
            return problem.errno or errno.EACCES
        return 0


def _copied_descriptor(thread: int, number: int) -> int:
    """Duplicate a descriptor of another process. Raises OSError."""
    with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
        process = next(int(line.split()[1]) for line in file if line.startswith("Tgid:"))
    handle = os.pidfd_open(process)
    try:
        return kernel.syscall("pidfd_getfd", handle, number, 0)
    finally:
        os.close(handle)
