"""Landlock: unprivileged denial of writes elsewhere."""

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Mapping
from typing import Any

from advisor.sandbox import kernel, untrusted
from advisor.sandbox.base import Sandbox
from advisor.sandbox.path_policy import SYSTEM_TREES, is_within
from advisor.sandbox.seccomp import (
    METADATA,
    NO_FOLLOW,
    SyscallListener,
    SyscallNotification,
)

VERSION, PATH_BENEATH = 1, 1
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
RIGHTS = {1: WRITE_FILE | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: TRUNCATE}
"""By version: write, remove and make entries; link and move between folders; truncate.
Running and device controls stay free."""
READS_MEMORY = (kernel.CAP_SYS_PTRACE, kernel.CAP_SYS_ADMIN, kernel.CAP_PERFMON)
"""Capabilities by which root reads the memory of outside processes."""
READ_FILE, READ_DIR = 1 << 2, 1 << 3
READ = READ_FILE | READ_DIR
"""Denied where folders are hidden."""


class Landlock(Sandbox):
    """Confines the command, not its supervisor."""

    listener: SyscallListener

    def __init__(self, policy: Mapping[str, Any]) -> None:
        super().__init__()
        self._free = (*policy["passes"], *SYSTEM_TREES)
        self._read = untrusted.readable(policy)
        connect = (untrusted.CONNECT,) if self._read else ()
        self.listener = SyscallListener((*METADATA, *connect), self.judge)

    def confine(self) -> None:
        version = kernel.syscall("landlock_create_ruleset", None, 0, VERSION)
        rights = sum(bits for since, bits in RIGHTS.items() if since <= version)
        if self._read:
            rights |= READ
        ruleset = kernel.syscall("landlock_create_ruleset", struct.pack("Q", rights), 8, 0)
        for path in self._free:
            self._allow(ruleset, path, rights)
        for path in self._read:
            self._allow(ruleset, path, READ)
        for capability in READS_MEMORY if self._read else ():
            with contextlib.suppress(OSError):  # an ordinary user has none
                kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.syscall("landlock_restrict_self", ruleset, 0)
        os.close(ruleset)
        self.listener.confine()

    def judge(self, notice: SyscallNotification) -> int | None:
        call = notice.call
        if call is untrusted.CONNECT:
            return untrusted.connect(notice, self._free)
        flags = notice.arguments[call.flags] if call.flags is not None else 0
        follows = call.follows and not flags & NO_FOLLOW
        path = notice.place(call.folder, call.path, follows=follows)
        free = not path or any(is_within(path, each) for each in self._free)
        return None if free else errno.EACCES

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
