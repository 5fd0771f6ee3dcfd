"""Failures that come from where a program may write: denied, or no space for it. Told as such."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.sandbox.places import SYSTEM_TREES, is_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.sandbox.confinement import SandboxPolicy

DENIED = re.compile(
    r"Permission denied|Operation not permitted|Read-only file system"
    r"|Invalid cross-device link|Value too large for defined data type"
)
MISSING = re.compile(r"No such file or directory|Directory nonexistent")
DENIED_WITHOUT_A_PATH = re.compile(
    r"unable to open database file|attempt to write a readonly database"
    r"|\b[Ff]ile (?P<path>\S+) cannot be opened|Parent directory (?P<folder>\S+) does not exist"
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
_QUOTED = re.compile(r"['\"\u2018`](/?[^'\"\u2019`]+)['\"\u2019]")
_BEFORE_REASON = re.compile(
    r"(\S+)[:;] (?:Permission denied|Operation not permitted|Read-only|No such file"
    r"|Directory nonexistent)"
)

FULL_SHARE = 100
"""A disk with less than this part free is full."""


class InvalidChange(NamedTuple):
    kind: str
    """A key of FAILURE_EXIT_CODES."""
    evidence: str
    next_step: str


def refusal(
    told: SandboxPolicy,
    lines: Iterable[str],
    *,
    cwd: str,
    changes: Mapping[str, Any] | None,
    variables: Mapping[str, str],
) -> InvalidChange | None:
    """Why a program that failed and said `lines` could not write; None if that was not it.

    `variables` names what the user may set to get more room: a folder's and a size's.
    """
    lines = list(lines)
    return _full(told, lines, changes, variables) or _denied(
        told, lines, cwd, changes["denied"] if changes else ()
    )


def _full(
    told: SandboxPolicy,
    lines: list[str],
    changes: Mapping[str, Any] | None,
    variables: Mapping[str, str],
) -> InvalidChange | None:
    said = next(
        (line for line in lines if FULL.search(line) and not SHARED_MEMORY.search(line)), None
    )
    layer_full = bool(changes and changes["full"])
    if said is None and not layer_full:
        return None
    for folder in told.passes:
        space = _space(folder)
        if space and space[0] < space[1] // FULL_SHARE and not layer_full:
            evidence = f"{said}; the disk of {folder} has {_size(space[0])} of {_size(space[1])}"
            return InvalidChange(
                "disk-full", evidence, "Free space there, or set TMPDIR to another disk."
            )
    if told.throws_away and told.upper_bytes:
        return InvalidChange(
            "disk-full",
            f"{said or 'it failed'}; what a trial writes may take {_size(told.upper_bytes)} "
            "of memory, and is thrown away",
            f"Set {variables['size']} to more, or {variables['folder']} to a folder on a disk.",
        )
    return InvalidChange(
        "disk-full", said or "no space is left", "Free space on the disk that it writes to."
    )


def _denied(
    told: SandboxPolicy, lines: list[str], cwd: str, folders: Iterable[str]
) -> InvalidChange | None:
    for line in lines:
        if DENIED.search(line):
            for path in _paths(line, cwd):
                if _is_ours(told, path):
                    return _write_denied(told, path, line)
    ours = [folder for folder in folders if _is_ours(told, folder)]
    for line in lines:
        if MISSING.search(line):
            for path in _paths(line, cwd):
                for folder in ours:
                    if is_within(path, folder):
                        return _write_denied(told, folder, line)
    if told.kind == "landlock":
        for line in lines:
            found = DENIED_WITHOUT_A_PATH.search(line)
            if found:
                name = found["path"] or found["folder"]
                place = os.path.realpath(os.path.join(cwd, name)) if name else None
                if place is None or _is_ours(told, place):
                    return _write_denied(told, place, line)
    return None


def _write_denied(told: SandboxPolicy, path: str | None, line: str) -> InvalidChange:
    place = f"a write to {path}" if path else "a write"
    if told.throws_away:
        return InvalidChange(
            "write-denied",
            f"{place} was denied: {line.strip()}",
            "An overlay covers what belongs to you. Let that output go below the project, your "
            "home or TMPDIR (output-flags in gpu-advisor.toml).",
        )
    return InvalidChange(
        "write-denied",
        f"{place} outside the trial's own folders was denied: {line.strip()}",
        "Let that output go below TMPDIR (output-flags in gpu-advisor.toml), or give "
        f"--allow-writes. {_no_overlay(told)}",
    )


def _no_overlay(told: SandboxPolicy) -> str:
    """Why it was not let through and thrown away."""
    why = told.why_not_better
    where = "user namespaces are allowed" if NO_NAMESPACES.search(why) else "an overlay holds"
    return f"Where {where} it is let through and thrown away; not here ({why})."


def _is_ours(told: SandboxPolicy, path: str) -> bool:
    """Whether this user may write there, so that it was us who denied it."""
    if any(is_within(path, each) for each in (*told.passes, *SYSTEM_TREES)):
        return False
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return os.access(place, os.W_OK)


def _paths(line: str, cwd: str) -> list[str]:
    """What a line about a denied call names: in quotes, else before the reason."""
    named = _QUOTED.findall(line) or _BEFORE_REASON.findall(line)
    return [os.path.realpath(os.path.join(cwd, name)) for name in named]


def _space(folder: str) -> tuple[int, int] | None:
    """Free and whole bytes of the disk."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize


def _size(number: int) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
