"""Deputies: what the supervisor does for a program whose own call is stopped.

Each is listed in docs/isolation.md with its rights. Three rules hold for all of them:

- A deputy opens what a call names, checks what it opened, and acts on the open file. So a path
  that changes meanwhile leads nowhere else.
- It acts with the capabilities of the program (`kernel.program_rights`), and for no caller that
  has given up any: a user, a group, a root folder or a namespace of its own.
- It never waits for the program.
"""

import contextlib
import errno
import os
import re
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from advisor.sandbox import kernel
from advisor.sandbox.path_policy import SHARED_MEMORY, is_within
from advisor.sandbox.seccomp import Call, SyscallNotification, Test

HERE = -100
"""AT_FDCWD of `linux/fcntl.h`: relative to the working directory."""
NO_FOLLOW, EMPTY_PATH = 0x100, 0x1000
"""AT_SYMLINK_NOFOLLOW; AT_EMPTY_PATH: the descriptor is the file itself."""
NO_MAGIC_LINKS = 0x02
"""RESOLVE_NO_MAGICLINKS of `linux/openat2.h`.

Links below /proc/self/fd would be the supervisor's own."""
OWN_DESCRIPTOR = re.compile(
    rb"(?:/dev/fd|/proc/(?:self|thread-self)(?:/task/\d+)?/fd)/(\d+)"
)
"""Names of an open file of the caller's; C libraries change modes by them."""
ATTRIBUTE_BYTES = 1 << 16
"""Longest value of an extended attribute: XATTR_SIZE_MAX of `linux/limits.h`."""
ADDRESS_BYTES = 128
"""Longest address of a socket, its family included: sockaddr_storage of `linux/socket.h`."""
CONNECT_LIMIT_S = 0.5
"""A connection that takes so many seconds is answered with EINTR, as by a signal.

On a network it goes on by itself. Judgement: shorter interrupts connections to a busy server,
longer keeps every other call waiting that the supervisor decides on."""
AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_VSOCK = 0, 1, 2, 10, 16, 40
STREAM, DATAGRAM, RAW, KIND_OF_SOCKET = 1, 2, 3, 0xF
TCP, FAST_OPEN, LISTENS = 6, 0x2000_0000, "0A"
"""A protocol; MSG_FASTOPEN, which connects with the first message; a state in /proc/net/tcp."""
NEAR = (bytes(4), bytes(16), bytes(15) + b"\x01")
"""Addresses of this host beside 127.0.0.0/8: the empty one of each version, and ::1."""
MAPPED = bytes(10) + b"\xff\xff"
"""In front of an address of version 4 within one of version 6 (RFC 4291, section 2.5.5.2)."""


class NamedFile(NamedTuple):
    """Arguments that name a file: open folder (or file), path, flags."""

    folder: int | None = None
    path: int | None = None
    flags: int | None = None
    follows: bool = True


MetadataChange = Callable[[SyscallNotification], Callable[[int], None]]
"""Reads the wanted change from the program, and returns what makes it on a descriptor."""


def metadata(passes: Sequence[str]) -> tuple[Call, ...]:
    """Calls that change modes, owners, times and attributes: allowed in `passes` alone.

    Landlock knows none of these. What has no number here, it has no way either: other
    architectures and io_uring are denied as a whole.
    """
    free = (*passes, SHARED_MEMORY)
    decided = (
        Call(x86_64, aarch64, act=_changing(free, target, change))
        for x86_64, aarch64, target, change in CHANGES
    )
    return (*decided, *UNKNOWN_TO_LANDLOCK)


def _changing(
    free: Sequence[str], target: NamedFile, change: MetadataChange
) -> Callable[[SyscallNotification], int | None]:
    def act(notice: SyscallNotification) -> int | None:
        make = change(notice)
        with _opened(notice, target) as handle:
            if not _is_free(handle, free):
                return errno.EACCES
            return _answer(make, handle)

    return act


def connecting(allowed: Sequence[str], *, network: bool = True) -> tuple[Call, ...]:
    """Calls that reach sockets of the file tree: in `allowed` alone, and none without a file.

    Without a `network` a program reaches its own servers on this host, and no others.
    A datagram names its target in each message, in memory that cannot be checked. So sockets of
    datagrams are not made at all; what talks to the system's log by them does without.
    """

    def act(notice: SyscallNotification) -> int | None:
        size = min(notice.word(2), ADDRESS_BYTES)
        address = notice.memory(notice.arguments[1], size)
        _require_same_rights(notice.pid)
        with socket.socket(fileno=_copied(notice.pid, notice.word(0))) as copy:
            if copy.family != socket.AF_UNIX:
                if not network and not _is_own_server(address):
                    return errno.ENETUNREACH
                # not left to the kernel: another socket may have this number by now
                return _answer(lambda number: _connect(number, address), copy.fileno())
            name = address[2:].partition(b"\0")[0]
            if not name:  # of the abstract name space, where no folder is its own
                return errno.EACCES
            with _opened_name(notice, name) as handle:
                if not _is_free(handle, allowed):
                    return errno.EACCES
                place = address[:2] + os.fsencode(kernel.proc(f"self/fd/{handle}")) + b"\0"
                answer = _answer(lambda number: _connect(number, place), copy.fileno())
                return errno.EAGAIN if answer == errno.EINTR else answer  # it stays undone

    return (
        Call(42, 203, act=act),
        *(
            Call(
                *numbers,
                errno.EACCES,
                tests=(Test(0, AF_UNIX), Test(1, kind, KIND_OF_SOCKET)),
            )
            for numbers in ((41, 198), (53, 199))  # socket, socketpair
            for kind in (DATAGRAM, RAW)
        ),
        *(() if network else NO_NETWORK),
    )


NO_NETWORK = (
    *(
        Call(41, 198, error, tests=(Test(0, family), *tests))  # socket
        for family in (AF_INET, AF_INET6)
        for error, tests in (
            (errno.EACCES, (Test(1, STREAM, KIND_OF_SOCKET, differs=True),)),
            (errno.EPROTONOSUPPORT, (Test(2, 0, differs=True), Test(2, TCP, differs=True))),
        )
    ),
    Call(
        41,
        198,
        errno.EAFNOSUPPORT,
        tests=tuple(
            Test(0, family, differs=True)
            for family in (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
        ),
    ),
    *(
        Call(x86_64, aarch64, errno.EOPNOTSUPP, tests=(Test(flags, FAST_OPEN, FAST_OPEN),))
        for x86_64, aarch64, flags in ((44, 206, 3), (46, 211, 2), (307, 269, 3))
    ),  # sendto, sendmsg, sendmmsg
)
"""Ways to a network beside a connection of TCP: datagrams, other families, a first message."""


def _is_own_server(address: bytes) -> bool:
    """Return True for an address of this host at which the program listens, or nobody does.

    Nobody else listens there a moment later: the program's own server holds the port.
    """
    (family,) = struct.unpack_from("=H", address)
    (port,) = struct.unpack_from(">H", address, 2)
    if family in (AF_UNSPEC, AF_NETLINK):  # an end of a connection, and the kernel
        return True
    host = {AF_INET: address[4:8], AF_INET6: address[8:24]}.get(family, b"")
    if (
        host[:1] != b"\x7f"
        and host.removeprefix(MAPPED)[:1] != b"\x7f"
        and host not in NEAR
    ):
        return False
    listening = set(_listening(port))
    return not listening or listening <= _sockets_of_program()


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of sockets that listen at a port of TCP."""
    for name in ("tcp", "tcp6"):
        with (
            contextlib.suppress(FileNotFoundError),  # a kernel without version 6
            open(kernel.proc(f"{os.getpid()}/net/{name}"), encoding="ascii") as file,
        ):
            for line in file:
                words = line.split()
                if words[3] == LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def _sockets_of_program() -> set[str]:
    """Return the inodes of all sockets that the program's processes hold open."""
    inodes: set[str] = set()
    for name in filter(str.isdecimal, os.listdir(kernel.proc(""))):
        with contextlib.suppress(OSError):
            if _is_inside(int(name)) and int(name) != os.getpid():
                folder = kernel.proc(f"{name}/fd")
                links = (os.readlink(f"{folder}/{name}") for name in os.listdir(folder))
                inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    return inodes


def _connect(number: int, address: bytes) -> None:
    """Connect an open socket, for a short time. Raises OSError.

    A server that accepts nothing keeps its caller waiting. Here that would be the supervisor, and
    with it every other call that it decides on; so a timer interrupts the attempt.
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, CONNECT_LIMIT_S)
    try:
        kernel.connect(number, address)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def others(*, signals: bool) -> tuple[Call, ...]:
    """Calls on other processes: allowed on the program's own alone.

    Processes of one user may change each other's CPUs, priority and limits, and may stop each
    other. The first argument that names a process is a number, which cannot change once checked.
    `signals` are left out where Landlock bounds them.
    """

    def on_process(place: int) -> Callable[[SyscallNotification], int | None]:
        def act(notice: SyscallNotification) -> int | None:
            return None if _is_inside(notice.signed(place)) else errno.EPERM

        return act

    def on_several(process: int) -> Callable[[SyscallNotification], int | None]:
        def act(notice: SyscallNotification) -> int | None:
            kind, who = notice.signed(0), notice.signed(1)
            allowed = kind == process and _is_inside(who)
            allowed |= kind in (process, process + 1) and who == 0  # itself, or its group
            return None if allowed else errno.EPERM

        return act

    def signalled(place: int) -> Callable[[SyscallNotification], int | None]:
        def act(notice: SyscallNotification) -> int | None:
            pid = notice.signed(place)  # below zero: a group of processes
            if pid == 0:
                return None
            return None if pid != -1 and _is_inside(abs(pid)) else errno.EPERM

        return act

    elsewhere = (Test(0, 0, differs=True),)
    calls = [Call(*numbers, act=on_process(0), tests=elsewhere) for numbers in SCHEDULING]
    calls += [
        Call(141, 140, act=on_several(0), tests=(Test(1, 0, differs=True),)),  # setpriority
        Call(141, 140, act=on_several(0), tests=(Test(0, 2),)),  # all of this user
        Call(251, 30, act=on_several(1), tests=(Test(1, 0, differs=True),)),  # ioprio_set
        Call(251, 30, act=on_several(1), tests=(Test(0, 3),)),
    ]
    if signals:
        calls.append(Call(62, 129, act=signalled(0), tests=elsewhere))  # kill
        calls += [Call(*numbers, act=on_process(0)) for numbers in SIGNALS]
        calls.append(Call(72, 25, act=signalled(2), tests=(Test(1, SET_OWNER),)))  # fcntl
        calls += SIGNALS_BY_FILES
    return tuple(calls)


SCHEDULING = (
    (142, 118),  # sched_setparam
    (144, 119),  # sched_setscheduler
    (203, 122),  # sched_setaffinity
    (314, 274),  # sched_setattr
    (302, 261),  # prlimit64
    (256, 238),  # migrate_pages
    (279, 239),  # move_pages
)
SIGNALS = (
    (200, 130),  # tkill
    (234, 131),  # tgkill
    (129, 138),  # rt_sigqueueinfo
    (297, 240),  # rt_tgsigqueueinfo
    (434, 434),  # pidfd_open
)
SET_OWNER, SET_OWNER_EXTENDED = 8, 15
"""F_SETOWN and F_SETOWN_EX of fcntl(2): who gets a signal once a file can be read."""
SIGNALS_BY_FILES = (
    Call(
        424, 424, errno.ENOSYS
    ),  # pidfd_send_signal, which takes a folder of /proc as well
    Call(72, 25, errno.EPERM, tests=(Test(1, SET_OWNER_EXTENDED),)),
    *(
        Call(16, 29, errno.EPERM, tests=(Test(1, request),))
        for request in (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
    ),
)
"""Signals to a process that an open file or the program's memory names: either may change."""

KEYS = tuple(
    Call(*numbers, errno.ENOSYS)
    for numbers in ((248, 217), (249, 218), (250, 219))  # add_key, request_key, keyctl
)
"""The kernel's key rings outlive a run, and are shared with the caller's session."""
SHARED_BY_NUMBER = tuple(
    Call(*numbers, errno.EACCES)
    for numbers in (
        (29, 194), (30, 196), (31, 195),  # shmget, shmat, shmctl
        (64, 190), (65, 193), (66, 191), (220, 192),  # semget, semop, semctl, semtimedop
        (68, 186), (69, 189), (70, 188), (71, 187),  # msgget, msgsnd, msgrcv, msgctl
        (240, 180), (241, 181),  # mq_open, mq_unlink
    )
)  # fmt: skip
"""System V's memory, semaphores and messages, and POSIX queues: they outlive a run."""
OF_OTHERS_SPEED = (
    Call(221, 223, 0, tests=(Test(3, 4),)),  # fadvise64: DONTNEED
    Call(28, 233, 0, tests=(Test(2, 20),)),  # madvise: COLD
    Call(28, 233, 0, tests=(Test(2, 21),)),  # madvise: PAGEOUT
    Call(440, 440, errno.ENOSYS),  # process_madvise
)
"""Advice to take a file out of memory: the next run, maybe the other arm's, would read a disk.

It is taken, and nothing done.
"""
MOUNTS = tuple(
    Call(*numbers, errno.EPERM)
    for numbers in (
        (165, 40), (166, 39), (155, 41),  # mount, umount2, pivot_root
        (428, 428), (429, 429),  # open_tree, move_mount
        (430, 430), (431, 431), (432, 432), (433, 433),  # fsopen, fsconfig, fsmount, fspick
        (442, 442), (467, 467),  # mount_setattr, open_tree_attr
    )
)  # fmt: skip
"""In a namespace of its own a program of root's could mount control groups, and so slow others.

Landlock forbids mounts by itself, but not to make one that lies nowhere.
"""
TERMINALS = tuple(
    Call(16, 29, errno.EPERM, tests=(Test(1, request),)) for request in (0x5412, 0x541C)
)
"""Keys put into a terminal (TIOCSTI), and the selection of a console (TIOCLINUX)."""
OF_VIRTUAL_MACHINES = (Call(41, 198, errno.EACCES, tests=(Test(0, AF_VSOCK),)),)
"""Sockets to the host of a virtual machine: no name space of networks holds them."""
IO_URING = (Call(425, 425, errno.ENOSYS),)
"""It makes other calls without making them, so that no filter sees them."""
SLOW_MEMORY = (Call(323, 282, errno.EPERM),)
"""userfaultfd: a deputy that reads the program's memory would wait for the program."""

UNKNOWN_TO_LANDLOCK = (
    *IO_URING,
    Call(452, 452, errno.ENOSYS),  # fchmodat2: C libraries fall back on the calls above
    Call(463, 463, errno.ENOSYS),  # setxattrat
    Call(466, 466, errno.ENOSYS),  # removexattrat
    Call(469, 469, errno.ENOSYS),  # file_setattr
    *(
        Call(16, 29, errno.EPERM, tests=(Test(1, request),))
        for request in (
            0x4008_6602,  # FS_IOC_SETFLAGS, as chattr does
            0x401C_5820,  # FS_IOC_FSSETXATTR
            0x4008_7602,  # FS_IOC_SETVERSION
            0x4008_6604,  # EXT4_IOC_SETVERSION
            0x800C_6613,  # FS_IOC_SET_ENCRYPTION_POLICY
            0x4080_6685,  # FS_IOC_ENABLE_VERITY
        )
    ),
)
"""Further ways to change a file that is open for reading; programs do without them."""


def _mode(place: int) -> MetadataChange:
    return lambda notice: (
        lambda handle: os.chmod(
            kernel.proc(f"self/fd/{handle}"), notice.word(place) & 0o7777
        )
    )


def _owner(user: int, group: int) -> MetadataChange:
    return lambda notice: (
        lambda handle: kernel.change_owner(
            handle, notice.signed(user), notice.signed(group)
        )
    )


def _times(place: int, fields: int, unit_ns: int) -> MetadataChange:
    """Two times, each of a word of seconds and, if four fields, one in `unit_ns`."""

    def change(notice: SyscallNotification) -> Callable[[int], None]:
        times = None
        if address := notice.arguments[place]:
            words = struct.unpack(f"={fields}q", notice.memory(address, 8 * fields))
            pairs = (
                zip(words[::2], words[1::2], strict=True)
                if fields == 4
                else ((word, 0) for word in words)
            )
            times = struct.pack(
                "=4q", *(n for s, part in pairs for n in (s, part * unit_ns))
            )
        return lambda handle: kernel.change_times(handle, times)

    return change


def _set_attribute(first: int) -> MetadataChange:
    def change(notice: SyscallNotification) -> Callable[[int], None]:
        name, size = _attribute(notice, first), notice.arguments[first + 2]
        if size > ATTRIBUTE_BYTES:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        value = notice.memory(notice.arguments[first + 1], size) if size else b""
        flags = notice.word(first + 3)
        return lambda handle: os.setxattr(
            kernel.proc(f"self/fd/{handle}"), name, value, flags
        )

    return change


def _remove_attribute(first: int) -> MetadataChange:
    def change(notice: SyscallNotification) -> Callable[[int], None]:
        name = _attribute(notice, first)
        return lambda handle: os.removexattr(kernel.proc(f"self/fd/{handle}"), name)

    return change


def _attribute(notice: SyscallNotification, place: int) -> bytes:
    """Return an attribute's name; those of the system's are not supported here."""
    name = notice.text(notice.arguments[place])
    if not name.startswith(b"user."):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return name


_FILE = NamedFile(folder=0)
_PATH, _LINK = NamedFile(path=0), NamedFile(path=0, follows=False)
_IN_FOLDER = NamedFile(folder=0, path=1)
CHANGES: tuple[tuple[int | None, int | None, NamedFile, MetadataChange], ...] = (
    (90, None, _PATH, _mode(1)),  # chmod
    (91, 52, _FILE, _mode(1)),  # fchmod
    (268, 53, _IN_FOLDER, _mode(2)),  # fchmodat
    (92, None, _PATH, _owner(1, 2)),  # chown
    (93, 55, _FILE, _owner(1, 2)),  # fchown
    (94, None, _LINK, _owner(1, 2)),  # lchown
    (260, 54, NamedFile(folder=0, path=1, flags=4), _owner(2, 3)),  # fchownat
    (132, None, _PATH, _times(1, 2, 1)),  # utime
    (235, None, _PATH, _times(1, 4, 1000)),  # utimes
    (261, None, _IN_FOLDER, _times(2, 4, 1000)),  # futimesat
    (280, 88, NamedFile(folder=0, path=1, flags=3), _times(2, 4, 1)),  # utimensat
    (188, 5, _PATH, _set_attribute(1)),  # setxattr
    (189, 6, _LINK, _set_attribute(1)),  # lsetxattr
    (190, 7, _FILE, _set_attribute(1)),  # fsetxattr
    (197, 14, _PATH, _remove_attribute(1)),  # removexattr
    (198, 15, _LINK, _remove_attribute(1)),  # lremovexattr
    (199, 16, _FILE, _remove_attribute(1)),  # fremovexattr
)
"""Numbers on x86_64 and aarch64, the file, and the change."""


def _answer(act: Callable[[int], None], handle: int) -> int:
    """Return 0 once it is done, or the kernel's refusal, which is the program's own."""
    try:
        with kernel.program_rights():
            act(handle)
    except OSError as problem:
        return problem.errno or errno.EACCES
    return 0


@contextlib.contextmanager
def _opened(notice: SyscallNotification, target: NamedFile) -> Iterator[int]:
    """Open the file of a call for the context. Raises OSError."""
    flags = notice.word(target.flags) if target.flags is not None else 0
    follows = target.follows and not flags & NO_FOLLOW
    name = b""
    if target.path is not None:
        name = notice.text(notice.arguments[target.path])
        itself = flags & EMPTY_PATH or not notice.arguments[target.path]
        if not name and not itself:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    with _opened_name(notice, name, target.folder, follows=follows) as handle:
        yield handle


@contextlib.contextmanager
def _opened_name(
    notice: SyscallNotification,
    name: bytes,
    folder: int | None = None,
    *,
    follows: bool = True,
) -> Iterator[int]:
    """Open what `name` is to the caller, below its working directory or an open folder.

    Raises OSError.
    """
    _require_same_rights(notice.pid)
    descriptor_name = OWN_DESCRIPTOR.fullmatch(name) if follows else None
    number = notice.signed(folder) if folder is not None else HERE
    with contextlib.ExitStack() as opened:

        def keep(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        if descriptor_name:
            yield keep(_copied(notice.pid, int(descriptor_name[1])))
            return
        if number == HERE:
            cwd = kernel.proc(f"{notice.pid}/cwd")
            start = keep(os.open(cwd, os.O_PATH | os.O_CLOEXEC))
        else:
            start = keep(_copied(notice.pid, number))
        if not name:
            yield start
            return
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
        with kernel.program_rights():
            yield keep(kernel.open_at(start, name, flags, NO_MAGIC_LINKS))


def _is_free(handle: int, free: Sequence[str]) -> bool:
    """Return True for a file in `free`, and for one without a name.

    Pipes, memory files and files that were removed belong to nobody else.
    """
    path = os.readlink(kernel.proc(f"self/fd/{handle}"))
    removed = os.stat(handle).st_nlink == 0
    return (
        removed or not path.startswith("/") or any(is_within(path, place) for place in free)
    )


def _copied(thread: int, number: int) -> int:
    """Duplicate a descriptor of another process. Raises OSError."""
    handle = os.pidfd_open(int(_status(thread)["Tgid"]))
    try:
        return kernel.syscall("pidfd_getfd", handle, number, 0)
    finally:
        os.close(handle)


def _status(pid: int | str) -> dict[str, str]:
    with open(kernel.proc(f"{pid}/status"), encoding="utf-8", errors="replace") as file:
        lines = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in lines}


SAME = ("Uid", "Gid", "Groups")
PLACES = ("root", "ns/user", "ns/mnt")


def _require_same_rights(pid: int) -> None:
    """Raise OSError for a caller that may do less than the program that was started.

    It has another user, sees another root, or gave up capabilities, so a deputy with the
    program's rights could do more than it.
    """
    mine, its = _status("self"), _status(pid)
    fewer = int(its["CapEff"], 16) & kernel.ON_FILES != (
        int(mine["CapEff"], 16) & kernel.ON_FILES if os.geteuid() == 0 else 0
    )
    if fewer or any(mine[name] != its[name] for name in SAME):
        raise OSError(errno.EACCES, "the caller has other rights")
    for place in PLACES:
        places = (os.stat(kernel.proc(f"{who}/{place}")) for who in ("self", pid))
        if not os.path.samestat(*places):
            raise OSError(errno.EACCES, "the caller sees another tree")


def _is_inside(thread: int) -> bool:
    """Return True for a process or thread below this supervisor. Raises OSError.

    By the chain of parents. A process whose parent ended moves up to the supervisor, which has
    asked the kernel for its orphans, and so stays inside.
    """
    mine, pid = os.getpid(), thread
    while pid > 1:
        with open(kernel.proc(f"{pid}/stat"), encoding="utf-8", errors="replace") as file:
            # the command's name, in parentheses, may hold spaces and parentheses
            pid = int(file.read().rpartition(")")[2].split()[1])
        if pid == mine:
            return True
    return False
