"""Failures caused by isolation: refused writes, full space."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.sandbox.path_policy import SYSTEM_TREES, is_within

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
    r"|\b[Ff]ile (?P<path>\S+) cannot be opened|Parent directory (?P<folder>\S+) does not exist"
)
"""Libraries that hide what the kernel line. Believed only where writes are denied."""
FULL = re.compile(
    r"No space left on device|\[Errno 28\]|Disk quota exceeded|database or disk is full"
    r"|PytorchStreamWriter failed writing|file write failed"
)
NO_NAMESPACES = re.compile(r"\bunshare: |/proc/self/(?:setgroups|[ug]id_map)")
"""In why there is no overlay."""
SHARED_MEMORY = re.compile(r"/dev/shm|/torch_|/psm_")  # noqa: S108
"""In a line of one that ran out of another thing."""
_QUOTED = re.compile(r"['\"\u2018`](/?[^'\"\u2019`]+)['\"\u2019]")
_BEFORE_REASON = re.compile(
    r"(\S+)[:;] (?:Permission denied|Operation not permitted|Read-only|No such file"
    r"|Directory nonexistent)"
)

FULL_SHARE = 100
"""A disk with less than this part free is full."""


class Denial(NamedTuple):
    kind: str
    """A key of FAILURE_EXIT_CODES."""
    evidence: str
    next_step: str


def refusal(
    policy: SandboxPolicy,
    lines: Iterable[str],
    *,
    cwd: str,
    changes: Mapping[str, Any] | None,
    variables: Mapping[str, str],
) -> Denial | None:
    """Explain a failure by the isolation, or return None.

    `variables` names what the user may set to get more room: a folder's and a size's.
    """
    lines = list(lines)
    return _full(policy, lines, changes, variables) or _denied(
        policy, lines, cwd, changes["denied"] if changes else ()
    )


def _full(
    policy: SandboxPolicy,
    lines: list[str],
    changes: Mapping[str, Any] | None,
    variables: Mapping[str, str],
) -> Denial | None:
    line = next(
        (each for each in lines if FULL.search(each) and not SHARED_MEMORY.search(each)), None
    )
    layer_full = bool(changes and changes["full"])
    if line is None and not layer_full:
        return None
    for folder in policy.passes:
        space = _space(folder)
        if space and space[0] < space[1] // FULL_SHARE and not layer_full:
            evidence = f"{line}; the disk of {folder} has {_size(space[0])} of {_size(space[1])}"
            return Denial("disk-full", evidence, "Free space there, or set TMPDIR to another disk.")
    if policy.throws_away and policy.upper_bytes:
        return Denial(
            "disk-full",
            f"{line or 'it failed'}; what a trial writes may take {_size(policy.upper_bytes)} "
            "of memory, and is thrown away",
            f"Set {variables['size']} to more, or {variables['folder']} to a folder on a disk.",
        )
    return Denial(
        "disk-full", line or "no space is left", "Free space on the disk that it writes to."
    )


def _denied(
    policy: SandboxPolicy, lines: list[str], cwd: str, folders: Iterable[str]
) -> Denial | None:
    for line in lines:
        if DENIED.search(line):
            for path in _paths(line, cwd):
                if _is_ours(policy, path):
                    return _write_denied(policy, path, line)
    ours = [folder for folder in folders if _is_ours(policy, folder)]
    for line in lines:
        if MISSING.search(line):
            for path in _paths(line, cwd):
                for folder in ours:
                    if is_within(path, folder):
                        return _write_denied(policy, folder, line)
    if policy.kind == "landlock":
        for line in lines:
            found = DENIED_WITHOUT_A_PATH.search(line)
            if found:
                name = found["path"] or found["folder"]
                place = os.path.realpath(os.path.join(cwd, name)) if name else None
                if place is None or _is_ours(policy, place):
                    return _write_denied(policy, place, line)
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
    return Denial(
        "write-denied",
        f"{place} outside the trial's own folders was denied: {line.strip()}",
        "Let that output go below TMPDIR (output-flags in gpu-advisor.toml), or give "
        f"--allow-writes. {_no_overlay(policy)}",
    )


def _no_overlay(policy: SandboxPolicy) -> str:
    """Explain why an overlay did not hold."""
    why = policy.why_not_better
    where = "user namespaces are allowed" if NO_NAMESPACES.search(why) else "an overlay holds"
    return f"Where {where} it is let through and thrown away; not here ({why})."


def _is_ours(policy: SandboxPolicy, path: str) -> bool:
    """Return True if only the isolation denied a write."""
    if any(is_within(path, each) for each in (*policy.passes, *SYSTEM_TREES)):
        return False
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return os.access(place, os.W_OK)


def _paths(line: str, cwd: str) -> list[str]:
    """Return the paths quoted in an error line."""
    named = _QUOTED.findall(line) or _BEFORE_REASON.findall(line)
    return [os.path.realpath(os.path.join(cwd, name)) for name in named]


def _space(folder: str) -> tuple[int, int] | None:
    """Return free and all bytes of the disk."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize


def _size(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
