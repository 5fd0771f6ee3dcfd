"""System calls and namespaces of isolation."""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
CAP_PERFMON = 38
CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_CHROOT = 16, 17, 18
CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_MKNOD = 19, 21, 27

SYSCALLS = {
    "seccomp": {"x86_64": 317, "aarch64": 277}.get(os.uname().machine, -1),
    "pidfd_getfd": 438,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
"""Numbers of calls that libc lacks."""

SETGID, SETUID, SETFCAP = 1 << 6, 1 << 7, 1 << 31
"""Capabilities needed to grant all numbers."""

_libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: str, target: str, fstype: str = "", flags: int = 0, data: str = ""
) -> None:
    """mount(2); empty strings are NULL."""
    words = [os.fsencode(word) or None for word in (source, target, fstype)]
    result = _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) or None)
    _checked(f"mount {fstype or 'bind'} on {target}", result)


def bind(source: str, target: str, *, deep: bool = False) -> None:
    """Bind `source` at `target`; `deep` includes submounts."""
    mount(source, target, flags=MS_BIND | (MS_REC if deep else 0))


def seal(target: str) -> None:
    """Make the mount at `target` alone read-only."""
    mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | flags_of(target))


def flags_of(path: str) -> int:
    """Flags of `path`'s mount that another over it must keep."""
    # statvfs has the same bits; a remount itself keeps those of access times
    return os.statvfs(path).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)


def unmount(target: str) -> None:
    """Detach a mount; it ends with its last user."""
    _checked(f"umount {target}", _libc.umount2(os.fsencode(target), MNT_DETACH))


def change_root(new_root: str) -> None:
    os.chdir(new_root)
    _checked("pivot_root", _libc.pivot_root(b".", b"."))
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    arguments = [ctypes.c_ulong(word) for word in (value, 0, 0, 0)]
    _checked("prctl", _libc.prctl(option, *arguments))


def syscall(name: str, *arguments: int | bytes | None) -> int:
    """Call one of `SYSCALLS`. Raises OSError."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = _libc.syscall(ctypes.c_long(SYSCALLS[name]), *words)
    _checked(name, result)
    return int(result)


def _checked(name: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def enter_namespaces(*, network: bool = True) -> None:
    """Enter new namespaces of users, mounts and network. Raises OSError.

    The process must have one thread. Root keeps all users and groups, others theirs.
    """
    user, group = os.geteuid(), os.getegid()
    kinds = CLONE_NEWUSER | CLONE_NEWNS | (0 if network else CLONE_NEWNET)
    if keeps_all_users():
        with _mapper():
            _checked("unshare", _libc.unshare(kinds))
    else:
        _checked("unshare", _libc.unshare(kinds))
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    mount("", "/", flags=MS_REC | MS_PRIVATE)


def keeps_all_users() -> bool:
    """Return True for a root that maps all users."""
    needed = SETGID | SETUID | SETFCAP
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        effective = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    several = sum(count for _, count in _ranges("uid")) > 1
    return os.geteuid() == 0 and several and int(effective, 16) & needed == needed


def _ranges(kind: str) -> list[tuple[int, int]]:
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        lines = [line.split() for line in file]
    return [(int(first), int(count)) for first, _, count in lines]


@contextlib.contextmanager
def _mapper() -> Iterator[None]:
    """Map each number to itself by a child outside. Raises OSError."""
    mine = os.getpid()
    maps = {
        kind: "".join(f"{first} {first} {count}\n" for first, count in _ranges(kind))
        for kind in ("gid", "uid")
    }
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        refused = 0
        try:
            if os.read(read, 1):
                for kind, text in maps.items():
                    _write(f"/proc/{mine}/{kind}_map", text)
        except OSError as problem:
            refused = problem.errno or errno.EPERM
        os._exit(refused)
    os.close(read)
    try:
        yield
        os.write(write, b"m")
    finally:
        os.close(write)
        refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if refused:
        raise OSError(refused, os.strerror(refused), "/proc/self/uid_map")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
