"""Failures caused by isolation: refused writes, full space."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.sandbox.path_policy import SYSTEM_TREES, is_within
from advisor.sandbox.policy import LAYER_FOLDER, LAYER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.sandbox.policy import SandboxPolicy

DENIED = re.compile(
    r"Permission denied|Operation not permitted|Read-only file system"
    r"|Invalid cross-device link|Value too large for defined data type"
)
MISSING = re.compile(r"No such file or directory|Directory nonexistent")
DENIED_WITHOUT_A_PATH = re.compile(
    r"unable to open database file|attempt to write a readonly database"
    r"|\b[Ff]ile \S+ cannot be opened|Parent directory \S+ does not exist"
)
"""Libraries that hide what the kernel said. Believed only where writes are denied."""
FULL = re.compile(
    r"No space left on device|\[Errno 28\]|Disk quota exceeded|database or disk is full"
    r"|PytorchStreamWriter failed writing|file write failed"
)
NO_NAMESPACES = re.compile(r"\bunshare: |/proc/self/(?:setgroups|[ug]id_map)")
"""In why there is no overlay."""
SHARED_MEMORY = re.compile(r"/dev/shm|/torch_|/psm_")  # noqa: S108
"""In a line of one that ran out of another thing."""
_PATHS = re.compile(
    r"['\"\u2018`](/?[^'\"\u2019`]+)['\"\u2019]"
    r"|(\S+)[:;] (?:Permission denied|Operation not permitted|Read-only|No such file"
    r"|Directory nonexistent)"
    r"|\b[Ff]ile (\S+) cannot be opened|Parent directory (\S+) does not exist"
)

FULL_SHARE = 100
"""A disk with less than this part free is full."""


class Denial(NamedTuple):
    kind: str
    """A key of FAILURE_EXIT_CODES."""
    evidence: str
    next_step: str


def refusal(
    policy: SandboxPolicy, lines: Iterable[str], *, cwd: str, changes: Mapping[str, Any] | None
) -> Denial | None:
    """Explain a failure by the isolation, or return None."""
    lines = list(lines)
    folders = changes["denied"] if changes else ()
    return _full(policy, lines, layer_full=bool(changes and changes["full"])) or _denied(
        policy, lines, cwd, [folder for folder in folders if _is_ours(policy, folder)]
    )


def _full(policy: SandboxPolicy, lines: list[str], *, layer_full: bool) -> Denial | None:
    full = [line for line in lines if FULL.search(line) and not SHARED_MEMORY.search(line)]
    if not full and not layer_full:
        return None
    why = full[0] if full else "no space is left"
    for folder in () if layer_full else filter(os.path.isdir, policy.passes):
        space = os.statvfs(folder)
        if space.f_bavail < space.f_blocks // FULL_SHARE:
            evidence = f"{why}; the disk of {folder} is full"
            return Denial("disk-full", evidence, "Free space there, or set TMPDIR to another disk.")
    if policy.throws_away and policy.upper_bytes:
        most = f"{policy.upper_bytes / 2**20:,.0f} MiB of memory"
        return Denial(
            "disk-full",
            f"{why}; what a trial writes may take {most}, and is thrown away",
            f"Set {LAYER_SIZE} to more, or {LAYER_FOLDER} to a folder on a disk.",
        )
    return Denial("disk-full", why, "Free space on the disk that it writes to.")


def _denied(policy: SandboxPolicy, lines: list[str], cwd: str, folders: list[str]) -> Denial | None:
    """Explain the first line that tells of a write which only the isolation denied.

    `folders` are those that it kept from being made.
    """
    for line in lines:
        names = ["".join(found) for found in _PATHS.findall(line)]
        paths = [os.path.realpath(os.path.join(cwd, name)) for name in names]
        hidden = policy.kind == "landlock" and DENIED_WITHOUT_A_PATH.search(line)
        if DENIED.search(line) or hidden:
            ours = [path for path in paths if _is_ours(policy, path)]
            if ours or (hidden and not paths):
                return _write_denied(policy, ours[0] if ours else None, line)
        elif MISSING.search(line):
            ours = [each for each in folders if any(is_within(path, each) for path in paths)]
            if ours:
                return _write_denied(policy, ours[0], line)
    return None


def _write_denied(policy: SandboxPolicy, path: str | None, line: str) -> Denial:
    place = f"a write to {path}" if path else "a write"
    if policy.throws_away:
        return Denial(
            "write-denied",
            f"{place} was denied: {line.strip()}",
            "An overlay covers what belongs to you. Let that output go below the project, your "
            "home or TMPDIR (output-flags in gpu-advisor.toml).",
        )
    why = policy.why_not_better
    where = "user namespaces are allowed" if NO_NAMESPACES.search(why) else "an overlay holds"
    return Denial(
        "write-denied",
        f"{place} outside the trial's own folders was denied: {line.strip()}",
        "Let that output go below TMPDIR (output-flags in gpu-advisor.toml), or give "
        f"--allow-writes. Where {where} it is let through and thrown away; not here ({why}).",
    )


def _is_ours(policy: SandboxPolicy, path: str) -> bool:
    """Return True if only the isolation denied a write."""
    if any(is_within(path, each) for each in (*policy.passes, *SYSTEM_TREES)):
        return False
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return os.access(place, os.W_OK)
