"""Landlock: unprivileged denial of writes elsewhere, and a filter for what it does not know."""

import contextlib
import os
import signal
import stat
import struct
from collections.abc import Mapping
from typing import Any

from advisor.sandbox import deputies, kernel, layers, untrusted
from advisor.sandbox.base import Sandbox
from advisor.sandbox.path_policy import SHARED_MEMORY, open_devices
from advisor.sandbox.seccomp import SyscallListener

VERSION, PATH_BENEATH = 1, 1
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
RIGHTS = {1: WRITE_FILE | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: TRUNCATE}
"""By version: write, remove and make entries; link and move between folders; truncate.
Running and device controls stay free."""
READ_FILE, READ_DIR = 1 << 2, 1 << 3
READ = READ_FILE | READ_DIR
"""Denied to foreign code, but where it is granted."""
ABSTRACT_SOCKETS, SIGNALS, SCOPES_SINCE = 1 << 0, 1 << 1, 6
"""What ends at the border of the sandbox, and the version that can bound it (Linux 6.12)."""


def version() -> int:
    """Return the version of Landlock here. Raises OSError."""
    return kernel.syscall("landlock_create_ruleset", None, 0, VERSION)


def _reach_no_process_outside() -> bool:
    """Bound the signals of this process to itself and those that it starts from now on.

    Returns whether that holds, tried on a process from before.
    """
    waits, ends = os.pipe()
    before = os.fork()
    if not before:
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    os.close(waits)
    try:
        _bound_signals()
        os.kill(before, 0)
    except PermissionError:
        return True
    finally:
        os.close(ends)
        os.waitpid(before, 0)
    return False


def _bound_signals() -> None:
    bounds = struct.pack("=3Q", 0, 0, SIGNALS)
    ruleset = kernel.syscall("landlock_create_ruleset", bounds, len(bounds), 0)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


class Landlock(Sandbox):
    """Confines the command, not its supervisor."""

    listener: SyscallListener

    def __init__(self, policy: Mapping[str, Any]) -> None:
        super().__init__()
        self._passes = tuple(policy["passes"])
        self._filled = tuple(policy["filled"])
        self._before: dict[str, tuple[int, ...]] = {}
        self._foreign = bool(policy["foreign"])
        """Its program may harm others: head of a gate, or code of a fork."""
        self._decides = not policy["undecided"]
        self._ends_all = False
        self._read = untrusted.readable(policy)
        calls = list(deputies.metadata(self._passes))
        if self._foreign:
            calls += [
                *deputies.connecting(
                    (*self._passes, SHARED_MEMORY), network=bool(policy["network"])
                ),
                *deputies.others(signals=version() < SCOPES_SINCE),
                *deputies.KEYS,
                *deputies.OF_VIRTUAL_MACHINES,
                *deputies.OF_OTHERS_SPEED,
                *deputies.TERMINALS,
                *deputies.SHARED_BY_NUMBER,
                *deputies.MOUNTS,
                *deputies.SLOW_MEMORY,
            ]
        self.listener = SyscallListener(calls)

    def enter(self) -> None:
        self._before = layers.files_in(self._filled)
        if self._foreign and version() >= SCOPES_SINCE:
            self._ends_all = _reach_no_process_outside()

    def end(self) -> None:
        """End all that foreign code left, at once: it may start processes faster than one by one.

        The kernel kills every process that the caller may signal, and no fork gets between. That
        is the program's own, as the supervisor gave up to signal any other.
        """
        if self._ends_all:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
        super().end()

    def changes(self, copies: str) -> dict[str, Any] | None:
        """Compare the user's folders of downloads with what they were."""
        del copies
        if not self._filled or len(self._before) >= layers.LOOKED_AT_LIMIT:
            return None
        after = layers.files_in(self._filled)
        if len(after) >= layers.LOOKED_AT_LIMIT:  # others may be left out than before
            return None
        return layers.real_changes(self._before, after)

    def confine(self) -> None:
        """Give up all rights but those to the policy's paths, for good. Raises OSError.

        Only rights that this kernel's Landlock knows are named: it refuses a set with others.
        """
        since = version()
        rights = sum(bits for first, bits in RIGHTS.items() if first <= since)
        rights |= READ if self._read else 0
        bounds = struct.pack("=Q", rights)
        if self._foreign and since >= SCOPES_SINCE:
            bounds = struct.pack("=3Q", rights, 0, ABSTRACT_SOCKETS | SIGNALS)
        ruleset = kernel.syscall("landlock_create_ruleset", bounds, len(bounds), 0)
        for path in (
            *self._passes,
            *open_devices(foreign=self._foreign),
            self._own_processes(),
        ):
            self._allow(ruleset, path, rights)
        for path in (*self._read, "/proc", "/sys") if self._read else ():
            self._allow(ruleset, path, READ)
        if self._read:  # its devices one by one: a disk holds what is hidden, too
            self._allow(ruleset, "/dev", READ_DIR)
        kernel.keep_capabilities(kernel.KEPT)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.syscall("landlock_restrict_self", ruleset, 0)
        os.close(ruleset)
        if self._decides:
            self.listener.confine()
            return
        with contextlib.suppress(
            OSError
        ):  # as far as it goes; the policy's notes tell the rest
            self.listener.confine(decides=False)

    def _own_processes(self) -> str:
        """Return what of /proc may be written: for root and foreign code its own process alone.

        To others the kernel itself allows no more than their own processes.
        """
        return f"/proc/{os.getpid()}" if self._foreign or os.geteuid() == 0 else "/proc"

    @staticmethod
    def _allow(ruleset: int, path: str, rights: int) -> None:
        try:
            place = os.open(path, os.O_PATH)
        except OSError:
            return
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= WRITE_FILE | TRUNCATE | READ_FILE
        rule = struct.pack("=Qi", rights, place)
        kernel.syscall("landlock_add_rule", ruleset, PATH_BENEATH, rule, 0)
        os.close(place)
