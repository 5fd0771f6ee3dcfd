"""System calls and namespaces of isolation."""

import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Iterator

# Namespaces of unshare(2): `linux/sched.h`.
CLONE_NEWNS = 0x0002_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

# Flags of mount(2) and mount_setattr(2): `linux/mount.h`; of files: `linux/fcntl.h`.
# MNT_DETACH of umount2(2): `sys/mount.h`.
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, AT_RECURSIVE = 1, 0x8000
HERE, EMPTY_PATH = -100, 0x1000
"""AT_FDCWD and AT_EMPTY_PATH."""

# Options of prctl(2): `linux/prctl.h`.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
PR_CAP_AMBIENT, CLEAR_ALL = 47, 4

# Bits of capabilities(7): `linux/capability.h`.
CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL = 1 << 0, 1 << 1, 1 << 3, 1 << 4, 1 << 5
SETGID, SETUID, SETPCAP = 1 << 6, 1 << 7, 1 << 8
NET_BIND_SERVICE, IPC_LOCK, SETFCAP = 1 << 10, 1 << 14, 1 << 31
ON_FILES = CHOWN | DAC_OVERRIDE | FOWNER | FSETID
"""Capabilities that decide whose files may be changed."""
KEPT = ON_FILES | KILL | SETGID | SETUID | SETPCAP | NET_BIND_SERVICE | IPC_LOCK | SETFCAP
"""All that root keeps in a sandbox: as in containers, without raw network, devices and `chroot`.

With the others root could remove a mount, load a module, set the clock, look into processes
outside, or open files by number. Pinned memory (IPC_LOCK) is needed for fast networks.
"""
LAST_CAPABILITY = 63
"""Highest bit that capset(2) has room for: two words of 32, by `linux/capability.h`."""

SYSCALLS = {
    "seccomp": {"x86_64": 317, "aarch64": 277}.get(os.uname().machine, -1),
    "capset": {"x86_64": 126, "aarch64": 91}.get(os.uname().machine, -1),
    "openat2": 437,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
"""Numbers of calls that libc lacks."""

_libc = ctypes.CDLL(None, use_errno=True)


class Proc:
    """Where this process finds the kernel's account of processes.

    The root of a sandbox with processes of its own shows these alone, so the supervisor stays
    in the host's /proc, as its working directory.
    """

    folder = "/proc"


def proc(path: str) -> str:
    """Return the path of `path` below /proc."""
    return f"{Proc.folder}/{path}"


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


def cover(path: str, null: str) -> None:
    """Show an empty folder in place of a folder, and `null` in place of a file. Raises OSError."""
    if os.path.isdir(path):
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
        mount("tmpfs", path, "tmpfs", flags, "mode=555,size=4k")
    else:
        bind(null, path)


def seal(target: str, *, deep: bool = False) -> None:
    """Make the mount at `target` read-only; `deep` includes those below it."""
    flags = AT_RECURSIVE if deep else 0
    attributes = struct.pack("=4Q", MOUNT_ATTR_RDONLY, 0, 0, 0)
    syscall("mount_setattr", HERE, os.fsencode(target), flags, attributes, len(attributes))


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


def open_at(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """openat2(2). Raises OSError."""
    how = struct.pack("=3Q", flags, 0, resolve)
    return syscall("openat2", folder, path, how, len(how))


def change_owner(handle: int, user: int, group: int) -> None:
    """Change the owner of an open file or link. Raises OSError."""
    _checked("fchownat", _libc.fchownat(handle, b"", user, group, EMPTY_PATH))


def change_times(handle: int, times: bytes | None) -> None:
    """Set both times of an open file or link; None is now. Raises OSError."""
    _checked("utimensat", _libc.utimensat(handle, b"", times, EMPTY_PATH))


def connect(number: int, address: bytes) -> None:
    """connect(2), once: EINTR if a signal comes first. Raises OSError."""
    _checked("connect", _libc.connect(number, address, len(address)))


def keep_capabilities(kept: int) -> None:
    """Let the next program have no capability beyond `kept`.

    An ordinary user has none to lose and may lose none, which is the same.
    """
    for capability in range(LAST_CAPABILITY + 1):
        if not kept & 1 << capability:
            with contextlib.suppress(OSError):  # unknown to this kernel, or not root
                prctl(PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        prctl(PR_CAP_AMBIENT, CLEAR_ALL)


@contextlib.contextmanager
def program_rights() -> Iterator[None]:
    """Act with the capabilities that the program has, for the context."""
    before = [int(_status(name), 16) for name in ("CapEff", "CapPrm", "CapInh")]
    effective = before[0] & KEPT if os.geteuid() == 0 else 0
    _set_capabilities(effective, *before[1:])
    try:
        yield
    finally:
        _set_capabilities(*before)


def _set_capabilities(*sets: int) -> None:
    """capset(2) of effective, permitted and inheritable ones. Raises OSError."""
    head = struct.pack("=II", 0x2008_0522, 0)  # of the third version: two words a set
    words = [each >> shift & 0xFFFF_FFFF for shift in (0, 32) for each in sets]
    syscall("capset", head, struct.pack("=6I", *words))


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


def enter_namespaces(*, network: bool = True, processes: bool = True) -> None:
    """Enter new namespaces of users and mounts. Raises OSError.

    Not to share the `network` or the `processes` takes further ones; the latter take System V's
    memory and POSIX queues with them, and hold for children alone.
    The process must have one thread. Root keeps all users and groups, others theirs.
    """
    user, group = os.geteuid(), os.getegid()
    kinds = CLONE_NEWUSER | CLONE_NEWNS | (0 if network else CLONE_NEWNET)
    kinds |= 0 if processes else CLONE_NEWPID | CLONE_NEWIPC
    if keeps_all_users():
        with _mapper():
            _checked("unshare", _libc.unshare(kinds))
    else:
        _checked("unshare", _libc.unshare(kinds))
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    # Who makes a name space of control groups may mount them, and root owns those of the host:
    # a program could slow or end others by files that no overlay covers. A container's settings
    # are read-only, and an older kernel has no such limit; foreign code may mount nothing anyhow.
    with contextlib.suppress(OSError):
        _write("/proc/sys/user/max_cgroup_namespaces", "0")


def keeps_all_users() -> bool:
    """Return True for a root that maps all users."""
    needed = SETGID | SETUID | SETFCAP
    several = sum(count for _, count in _ranges("uid")) > 1
    return os.geteuid() == 0 and several and int(_status("CapEff"), 16) & needed == needed


def _status(name: str) -> str:
    with open(proc("self/status"), encoding="utf-8", errors="replace") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{name}:"))


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
