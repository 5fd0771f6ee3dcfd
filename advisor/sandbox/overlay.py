"""Overlay: writes go to a temporary layer.

The supervisor moves into its own user and mount namespace. There a layer of this trial
lies over each writable file system. Unprivileged since Linux 5.11.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.sandbox import kernel, layers
from advisor.sandbox.base import Sandbox
from advisor.sandbox.mounts import FileTree, How, Mount, plan, read_mounts
from advisor.sandbox.path_policy import SHARED_MEMORY, SYSTEM_TREES, shut_devices

COPIED_BYTES = 16 << 20
"""Files in a split folder are copied up to this many bytes in all; others are read-only.

Judgement: smaller denies a program writes to its own files, larger delays each trial by copies."""
REFUSES_WRITES = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EOVERFLOW}


class Overlay(Sandbox):
    """Overlays over every writable file system."""

    def __init__(self, policy: Mapping[str, Any], cwd: str) -> None:
        super().__init__()
        self._policy = policy
        self._foreign = bool(policy["foreign"])
        """Its program may harm others: head of a gate, or code of a fork."""
        if self._foreign:
            self._listen()
        self._cwd = os.path.realpath(cwd)
        self._stage: str = policy["layers"]
        self._layers: list[tuple[str, str]] = []
        """Real folder below each upper layer, and the layer's in that of all."""
        self._sealed: list[str] = []
        """Places that cannot take an overlay, such as network file systems."""
        self._put: list[str] = []
        """Files of ours that stand over the user's."""
        self._host = self._kept = -1
        """Descriptors of the host's root, and the folder of all layers.

        No program can come by them: of a foreign one the supervisor is no process it could
        name, and to others it is not dumpable, so its /proc entry is closed.
        """

    def _listen(self) -> None:
        # imported here, as the supervisor of the user's own code needs neither
        from advisor.sandbox import deputies
        from advisor.sandbox.seccomp import SyscallListener

        calls = [
            *deputies.KEYS,
            *deputies.OF_VIRTUAL_MACHINES,
            *deputies.IO_URING,
            *deputies.OF_OTHERS_SPEED,
            *deputies.MOUNTS,
            *deputies.TERMINALS,
            *deputies.SLOW_MEMORY,
        ]
        if self._policy["network"]:  # which leaves sockets without a file in reach
            calls += deputies.connecting(("/",))
        self.listener = SyscallListener(calls)

    def enter(self) -> None:
        """Move in; files opened before are still the host's. Raises OSError.

        The whole tree is put together below `root`, then made the root in one step. What has to
        be known of the host is read first: inside the new namespaces its owners look foreign and
        its mounts can no longer be told from ours. What is bound later lies over what was
        bound before, so the walls come last.
        """
        os.makedirs(self._stage, mode=0o700, exist_ok=True)
        self._host = os.open("/", os.O_PATH | os.O_DIRECTORY)
        with open(
            "/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape"
        ) as file:
            mounts = read_mounts(file.read())
        private = self._policy["private_memory"]
        places = [self._cwd, os.path.realpath(os.path.expanduser("~"))]
        steps = plan(mounts, places, FileTree(), private_memory=private)
        proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        kernel.enter_namespaces(
            network=self._policy["network"], processes=not self._foreign
        )
        if self._policy["upper_bytes"]:
            _mount_memory(self._stage, self._policy["upper_bytes"])
        self._kept = os.open(self._stage, os.O_RDONLY | os.O_DIRECTORY)
        root = os.path.join(self._stage, "root")
        os.mkdir(root)
        for path, how in steps.items():
            self._take(how, path, root + path.rstrip("/"))
        for path in () if self._foreign else _sockets_in_use():
            with contextlib.suppress(OSError):
                kernel.bind(path, root + path)
        for cache, kept in self._policy["caches"]:  # for the whole call
            with contextlib.suppress(OSError):  # else it is lost with the trial
                _lay_over(cache, root + cache, kept)
        for path in self._policy["passes"]:
            with contextlib.suppress(FileNotFoundError):  # gone since it was looked for
                _let_through(path, root + path)
        for path in self._policy["sealed"]:
            with contextlib.suppress(FileNotFoundError):
                _show_sealed(path, root + path)
        if self._foreign:
            self._shut_in(root, mounts)
        _shut_kernel(root)
        kernel.change_root(root)
        os.fchdir(proc)
        os.close(proc)
        kernel.Proc.folder = "."

    def _shut_in(self, root: str, mounts: Sequence[Mount]) -> None:
        """Raise the walls around foreign code. Raises OSError."""
        from advisor.sandbox import untrusted

        if not self._policy["network"]:
            untrusted.start_loopback()
        untrusted.shut_kernels_other_places(root, mounts)
        untrusted.hide(root, self._policy)
        untrusted.shut_sockets(root)
        untrusted.take_terminals(root)
        self.helpers.add(untrusted.start_init(root))

    def _take(self, how: How, path: str, target: str) -> None:
        """Put the host's `path` at `target` of the new tree, in one of the ways of `How`."""
        match how:
            case "overlay":
                try:
                    self._cover(path, path, target)
                except OSError:
                    if os.path.isdir(path):  # else gone since it was looked at
                        self._sealed.append(path)
                        _show_sealed(path, target)
            case "split":
                base = os.path.join(self._stage, f"base{len(self._layers)}")
                sealed = _copied(path, base)
                self._cover(path, base, target)
                for name in sealed:
                    with contextlib.suppress(OSError):
                        _show_sealed(os.path.join(path, name), os.path.join(target, name))
            case "sealed" | "passes":
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    kernel.bind(path, target, deep=True)
                    if how == "sealed":
                        kernel.seal(target)
            case "memory":
                size = os.statvfs(path)
                flags = kernel.MS_NOSUID | kernel.MS_NODEV
                data = f"mode=1777,size={size.f_frsize * size.f_blocks}"
                kernel.mount("tmpfs", target, "tmpfs", flags, data)

    def _cover(self, path: str, lower: str, target: str) -> None:
        name = f"upper{len(self._layers)}"
        _lay_over(lower, target, os.path.join(self._stage, name))
        self._layers.append((path, f"{name}/upper"))

    def put(self, path: str, content: bytes) -> None:
        """Write `content` directly, or mount it over."""
        real = os.path.realpath(path)
        try:
            with open(real, "r+b") as file:
                file.truncate()
                file.write(content)
        except OSError as problem:
            if problem.errno not in REFUSES_WRITES:
                raise
            draft = os.path.join(self._policy["passes"][0], f"candidate{len(self._put)}")
            with open(draft, "wb") as file:
                file.write(content)
            kernel.bind(draft, real)
        self._put.append(real)

    def confine(self) -> None:
        if self.listener:
            self.listener.confine()
        kernel.keep_capabilities(kernel.KEPT)

    def changes(self, copies: str) -> dict[str, Any] | None:
        """Read the exact changes from the layers; None if never entered."""
        if self._kept < 0:
            return None
        changes: dict[str, Any] = layers.changes(
            self._kept, self._layers, self._host, copies
        )
        changes["changed"] = [path for path in changes["changed"] if path not in self._put]
        changes["sealed"] = self._sealed
        space = os.fstatvfs(self._kept)
        changes["full"] = (
            space.f_bavail * space.f_frsize < self._policy["upper_bytes"] // 100
        )
        return changes

    def leave(self) -> None:
        super().leave()
        if self._kept < 0:
            return
        for path in reversed(self._policy["passes"]):
            with contextlib.suppress(OSError):
                kernel.unmount(path)
        os.fchdir(self._host)
        os.chroot(".")
        kernel.Proc.folder = "/proc"
        os.close(self._kept)
        os.close(self._host)


def _shut_kernel(root: str) -> None:
    """Show the kernel's own files read-only, and no disk as a device.

    A folder of a process stays its own. /dev itself takes no new file and no new mode; its
    devices work as they are. Shared memory below it, and terminals, are mounts of their own.
    """
    shared = root + SHARED_MEMORY
    if os.path.isdir(shared) and not os.path.ismount(shared):
        kernel.bind(shared, shared)
    for path in shut_devices():
        with contextlib.suppress(FileNotFoundError):
            kernel.cover(root + path, f"{root}/dev/null")
    with os.scandir(f"{root}/proc") as entries:
        kernels = [entry for entry in entries if not entry.name.isdecimal()]
    for entry in kernels:
        writable = entry.stat(follow_symlinks=False).st_mode & 0o222
        if not entry.is_symlink() and (writable or entry.is_dir()):
            kernel.bind(entry.path, entry.path, deep=True)
            kernel.seal(entry.path, deep=True)
    for path, deep in ((f"{root}/sys", True), (f"{root}/dev", False)):
        if os.path.ismount(path):
            kernel.seal(path, deep=deep)


def _lay_over(lower: str, target: str, folder: str) -> None:
    """Mount `lower` at `target`, with what is written there in a layer in `folder`.

    `userxattr`: the layer's own marks are kept in attributes that need no privilege.
    """
    upper, work = os.path.join(folder, "upper"), os.path.join(folder, "work")
    opened = []
    try:
        for path in (upper, work):
            os.makedirs(path, exist_ok=True)
        _copy_status(lower, upper)
        opened += [
            os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (lower, upper, work)
        ]
        # descriptors, as a path may hold the characters between options
        below, above, between = (f"/proc/self/fd/{number}" for number in opened)
        data = f"userxattr,lowerdir={below},upperdir={above},workdir={between}"
        kernel.mount(
            "overlay", target, "overlay", kernel.MS_NODEV | kernel.flags_of(lower), data
        )
    finally:
        for number in opened:
            os.close(number)


def _mount_memory(stage: str, limit_bytes: int) -> None:
    """Take the layers into memory, if it keeps attributes (Linux 6.6)."""
    kernel.mount("tmpfs", stage, "tmpfs", kernel.MS_NOSUID, f"size={limit_bytes},mode=700")
    try:
        os.setxattr(stage, "user.gpu-advisor", b"y")
    except OSError:
        kernel.unmount(stage)


def _copy_status(source: str, target: str) -> None:
    status = os.stat(source)
    with contextlib.suppress(OSError):
        os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_file(source: str, target: str) -> None:
    """Copy a file with its mode, owner, times and attributes. Raises OSError."""
    with open(source, "rb") as content, open(target, "xb") as copy:
        layers.copy_content(content, copy)
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            os.setxattr(target, name, os.getxattr(source, name))
    _copy_status(source, target)


def _copied(folder: str, base: str) -> list[str]:
    """Copy small files of `folder`; return names to mount."""
    os.mkdir(base)
    not_copied, left = [], COPIED_BYTES
    with os.scandir(folder) as entries:
        for entry in entries:
            copy = os.path.join(base, entry.name)
            try:
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), copy)
                elif entry.is_dir():
                    os.mkdir(copy)
                    _copy_status(entry.path, copy)
                elif (
                    entry.is_file()
                    and entry.stat().st_size <= left
                    and os.access(entry, os.R_OK)
                ):
                    left -= entry.stat().st_size
                    _copy_file(entry.path, copy)
                else:
                    os.mknod(copy)
                    not_copied.append(entry.name)
            except FileNotFoundError:  # others work here
                continue
    _copy_status(folder, base)
    return not_copied


def _let_through(path: str, target: str) -> None:
    try:
        kernel.bind(path, target)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
        kernel.bind(path, target, deep=True)


def _show_sealed(path: str, target: str) -> None:
    kernel.bind(path, target, deep=True)
    kernel.seal(target)


def _sockets_in_use() -> Iterator[str]:
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            names = {line.rstrip("\n").partition(" /")[2] for line in file}
    except OSError:
        return
    for path in {f"/{name}" for name in names if name}:
        with contextlib.suppress(OSError):
            if not path.startswith(SYSTEM_TREES) and stat.S_ISSOCK(os.lstat(path).st_mode):
                yield path
