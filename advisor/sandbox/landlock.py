"""Writes outside the allowed places are denied by Landlock, which needs no privilege."""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, Any

from advisor.sandbox import kernel
from advisor.sandbox.places import SYSTEM_TREES, is_within
from advisor.sandbox.supervisor import (
    MAKES_FOLDER,
    METADATA,
    NO_FOLLOW,
    Supervisor,
    SyscallNotification,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

DENIED_LIMIT = 200
"""Folders that are noted."""
VERSION = 1
PATH_BENEATH = 1
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
RIGHTS = {
    1: WRITE_FILE | sum(1 << bit for bit in range(4, 13)),
    2: 1 << 13,
    3: TRUNCATE,
}
"""By the interface's version: write to a file; remove and make each kind of entry; link and move
between folders; truncate. Reading, running and the controls of devices stay free."""


class Landlock:
    """See Isolation. Only the command is confined, not its guardian."""

    def __init__(self, told: Mapping[str, Any], cwd: str) -> None:
        del cwd
        self._free = (*told["passes"], *SYSTEM_TREES)
        self._denied: list[str] = []
        self._supervisor = Supervisor((*METADATA, *MAKES_FOLDER), self._judge)

    def enter(self) -> None:
        """Nothing to do."""

    def confine(self) -> None:
        """Deny from here on, for all that this process starts."""
        version = kernel.syscall(
            "landlock_create_ruleset", kernel.LANDLOCK_CREATE_RULESET, None, 0, VERSION
        )
        rights = sum(bits for since, bits in RIGHTS.items() if since <= version)
        ruleset = kernel.syscall(
            "landlock_create_ruleset",
            kernel.LANDLOCK_CREATE_RULESET,
            struct.pack("Q", rights),
            8,
            0,
        )
        for path in self._free:
            self._allow(ruleset, path, rights)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.syscall("landlock_restrict_self", kernel.LANDLOCK_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)
        self._supervisor.confine()

    def _judge(self, notice: SyscallNotification) -> int | None:
        """Of modes, owners, times and attributes Landlock knows nothing. Folders it denies by
        itself, and tells nobody but the program, which may pass over it."""
        call = notice.call
        flags = notice.arguments[call.flags] if call.flags is not None else 0
        follows = call.follows and not flags & NO_FOLLOW
        path = notice.place(call.folder, call.path, follows=follows)
        free = not path or any(is_within(path, each) for each in self._free)
        if call not in MAKES_FOLDER:
            return None if free else errno.EACCES
        if not free and not os.path.lexists(path) and len(self._denied) < DENIED_LIMIT:
            self._denied.append(path)
        return None

    @staticmethod
    def _allow(ruleset: int, path: str, rights: int) -> None:
        try:
            place = os.open(path, os.O_PATH)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= WRITE_FILE | TRUNCATE
            rule = struct.pack("=Qi", rights, place)
            kernel.syscall(
                "landlock_add_rule", kernel.LANDLOCK_ADD_RULE, ruleset, PATH_BENEATH, rule, 0
            )
        finally:
            os.close(place)

    def put(self, path: str, content: bytes) -> None:
        """Not to be asked: candidates lie beside their originals."""
        raise NotImplementedError

    @property
    def listens(self) -> int:
        """See Isolation."""
        return self._supervisor.listens

    def serve(self) -> None:
        """A mode, an owner, a time or an attribute is to be changed, or a folder made."""
        self._supervisor.serve()

    def changes(self) -> dict[str, Any] | None:
        """Nothing but what was allowed."""
        none: dict[str, Any] = {"created": [], "changed": [], "removed": [], "sealed": []}
        return none | {"full": None, "denied": self._denied}

    def leave(self) -> None:
        """Nothing to do."""
