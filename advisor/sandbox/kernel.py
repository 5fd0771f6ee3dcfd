"""The system calls of isolation; each raises OSError that names the call."""

from __future__ import annotations

import ctypes
import os
import sys

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 1024, 2048, 1 << 21
MNT_DETACH = 2

PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_MKNOD = (
    16, 17, 18, 19, 21, 27,
)  # fmt: skip

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""Syscall numbers, the same on every architecture."""

_KEPT_FLAGS = {
    os.ST_NOSUID: MS_NOSUID,
    getattr(os, "ST_NODEV", 4): MS_NODEV,
    getattr(os, "ST_NOEXEC", 8): MS_NOEXEC,
    getattr(os, "ST_NOATIME", 1024): MS_NOATIME,
    getattr(os, "ST_NODIRATIME", 2048): MS_NODIRATIME,
    getattr(os, "ST_RELATIME", 4096): MS_RELATIME,
}
"""Of a mount that came from outside the namespace; it must keep them."""

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones; the process must have one thread."""
    _checked("unshare", _libc.unshare(flags))


def mount(source: str, target: str, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); empty strings are NULL."""
    words = [os.fsencode(word) or None for word in (source, target, fstype)]
    result = _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) or None)
    _checked(f"mount {fstype or 'bind'} on {target}", result)


def bind(source: str, target: str, *, deep: bool = False) -> None:
    """Show `source` at `target` too; `deep`: with what is mounted below it."""
    mount(source, target, flags=MS_BIND | (MS_REC if deep else 0))


def seal(target: str) -> None:
    """Make the mount at `target` read-only, without what is mounted below it."""
    kept = os.statvfs(target).f_flag
    flags = sum(flag for bit, flag in _KEPT_FLAGS.items() if kept & bit)
    mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def unmount(target: str) -> None:
    """Take a mount away; it ends when nobody uses it."""
    _checked(f"umount {target}", _libc.umount2(os.fsencode(target), MNT_DETACH))


def change_root(new_root: str) -> None:
    """Make the mount at `new_root` the root of this namespace, and let go of the old one."""
    os.chdir(new_root)
    _checked("pivot_root", _libc.pivot_root(b".", b"."))
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one value (Linux)."""
    if sys.platform == "linux":
        arguments = [ctypes.c_ulong(word) for word in (value, 0, 0, 0)]
        _checked("prctl", _libc.prctl(option, *arguments))


def syscall(name: str, number: int, *arguments: int | bytes | None) -> int:
    """A call that the C library has no function for; returns its result."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = _libc.syscall(ctypes.c_long(number), *words)
    _checked(name, result)
    return int(result)


def _checked(name: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
