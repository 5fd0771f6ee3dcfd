"""Walls around foreign code: folders, sockets, network."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from advisor.sandbox import kernel
from advisor.sandbox.mounts import Mount
from advisor.sandbox.path_policy import around, is_within, sockets_of_devices, terminals

SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41
"""SIOCSIFFLAGS of netdevice(7), and IFF_UP with IFF_RUNNING."""


def start_loopback() -> None:
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_,
    ):
        fcntl.ioctl(any_, SET_FLAGS, struct.pack("16sH14x", b"lo", UP_AND_RUNNING))


def start_init(root: str) -> int:
    """Start the first process of new ones, and show these in `root`. Raises OSError.

    Orphans of the program become its children. With it all others end, whatever they do: the
    kernel kills what is left of a process space without its first process.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _be_init(root, write)
    os.close(write)
    with open(read, "rb") as file:
        said = file.read(4)
    if said != b"0":
        number = int(said or errno.EIO)
        raise OSError(number, f"a process space of its own: {os.strerror(number)}")
    return child


def _be_init(root: str, write: int) -> NoReturn:
    """Mount what belongs to the process space, say how that went, then stay."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that orphans need no awaiting
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # which reaches no first process
    try:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("proc", f"{root}/proc", "proc", flags)
        if os.path.isdir(f"{root}/dev/mqueue"):
            kernel.mount("mqueue", f"{root}/dev/mqueue", "mqueue", flags)
        with contextlib.suppress(OSError):  # a kernel without this setting
            _scatter_numbers(root)
        problem = 0
    except OSError as refused:
        problem = refused.errno or errno.EIO
    os.write(write, b"%d" % problem)
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    while True:
        signal.pause()


def _scatter_numbers(root: str) -> None:
    """Begin with any number: programs take theirs for chance, such as a seed."""
    first = 300 + int.from_bytes(os.urandom(2), "little") // 3
    with open(f"{root}/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(first))


def shut_sockets(root: str) -> None:
    """Cover sockets among the devices, such as that of the system's log. Raises OSError.

    Devices are the host's own. All other sockets lie in an overlay, where they lead nowhere.
    """
    for path in sockets_of_devices():
        with contextlib.suppress(FileNotFoundError):
            kernel.bind(f"{root}/dev/null", root + path)


def shut_kernels_other_places(root: str, mounts: Iterable[Mount]) -> None:
    """Show no processes, and no files that stay, where a kernel's tree has another place.

    Raises OSError.
    """
    for mount in mounts:
        with contextlib.suppress(FileNotFoundError, PermissionError):  # out of reach
            if mount.fstype == "proc" and mount.path != "/proc":
                kernel.cover(root + mount.path, f"{root}/dev/null")
            if mount.fstype == "hugetlbfs":
                kernel.seal(root + mount.path)


def take_terminals(root: str) -> None:
    """Show terminals of the program's own in place of the user's. Raises OSError."""
    place = f"{root}/dev/pts"
    if not os.path.isdir(place):
        return
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", place, "devpts", flags, "newinstance,ptmxmode=0666,mode=0620")
    maker = f"{root}/dev/ptmx"
    if os.path.exists(maker) and not os.path.islink(maker):  # else it leads to that one
        kernel.bind(f"{place}/ptmx", maker)
    for path in terminals():
        if os.access(path, os.R_OK) or os.access(path, os.W_OK):
            kernel.bind(f"{root}/dev/null", root + path)


def hide(root: str, policy: Mapping[str, Any]) -> None:
    """Hide folders below `root` except selected parts, and files."""
    hidden = [path for path in policy["hidden"] if os.path.isdir(root + path)]
    for path in policy["hidden"]:
        if os.path.isfile(root + path):
            kernel.bind(f"{root}/dev/null", root + path)
    opened = []
    for path in sorted({*policy["shown"], *policy["passes"]}):
        if any(is_within(path, folder) for folder in hidden):
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
    """Return what foreign code may read; empty for the user's own, which may read all.

    Devices are granted one by one, as terminals lie among them.
    """
    if not policy["foreign"]:
        return ()
    withheld = ("/dev", *map(os.path.realpath, policy["hidden"]))
    return (*around(withheld), *policy["shown"])
