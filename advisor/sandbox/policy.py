"""Policy of one trial's isolation, and the failures that it causes."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from advisor.model import Failure
from advisor.sandbox.path_policy import SYSTEM_TREES, is_within

Kind = Literal["overlay", "landlock", "guard"]

LAYER_FOLDER = "GPU_ADVISOR_LAYER_FOLDER"
"""Variable: folder on a disk for a trial's writes, in place of memory."""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The better before the worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """Policy for writes, in absolute paths; defaults confine nothing."""

    kind: Kind = "guard"
    passes: tuple[str, ...] = ()
    """Folders really written to: the trial's own."""
    filled: tuple[str, ...] = ()
    """Folders of `passes` that are the user's, for downloads; changes in them are listed."""
    sealed: tuple[str, ...] = ()
    """Places in `passes` shown read-only by an overlay."""
    caches: tuple[tuple[str, str], ...] = ()
    """A user's cache, and the folder that keeps what trials add to it."""
    foreign: bool = False
    """The code may be hostile: walls around other processes, sockets and shared memory, too."""
    hidden: tuple[str, ...] = ()
    """Folders and files that cannot be read."""
    shown: tuple[str, ...] = ()
    """Paths in `hidden` that are still seen."""
    network: bool = True
    layers: str = ""
    """Folder of this trial alone in which layers are put together."""
    upper_bytes: int = 0
    """Limit of writes in memory; 0: `layers` is on a disk, which is the limit."""
    private_memory: bool = True
    undecided: str = ""
    """Why the supervisor cannot decide on calls, such as another that listens; empty if it can."""
    why_not_better: str = ""

    @property
    def throws_away(self) -> bool:
        return self.kind == "overlay"

    @property
    def notes(self) -> tuple[str, ...]:
        if self.undecided:
            reason = self.undecided
            return (
                f"the program could change modes, times and attributes of your files: {reason}",
            )
        if self.kind != "guard":
            return ()
        return (f"not isolated: what the program writes is real ({self.why_not_better})",)


DENIED = re.compile(
    r"Permission denied|Operation not permitted|Read-only file system"
    r"|Invalid cross-device link|Value too large for defined data type"
)
DENIED_WITHOUT_A_PATH = re.compile(
    r"unable to open database file|attempt to write a readonly database"
    r"|\b[Ff]ile \S+ cannot be opened|Parent directory \S+ does not exist"
)
"""Libraries that hide the kernel's answer; believed where writes are denied."""
FULL = re.compile(
    r"No space left on device|\[Errno 28\]|Disk quota exceeded|database or disk is full"
    r"|PytorchStreamWriter failed writing|file write failed"
)
LINE_CHARS = 300
"""Longest part of a program's line that is quoted, in characters.

Judgement: shorter cuts the path that was denied, longer buries the next step."""
SHARED_MEMORY = re.compile(r"/dev/shm|/torch_|/psm_")  # noqa: S108
"""In a line of one that ran out of another thing."""
_PATHS = re.compile(
    r"['\"\u2018`](/?[^'\"\u2019`]+)['\"\u2019]"
    r"|(\S+)[:;] (?:Permission denied|Operation not permitted|Read-only)"
    r"|\b[Ff]ile (\S+) cannot be opened|Parent directory (\S+) does not exist"
)


def full_space(
    policy: SandboxPolicy, lines: Sequence[str], *, layer_full: bool = False
) -> Failure | None:
    """Explain a failure by a full layer or disk, or return None."""
    said = (line for line in lines if FULL.search(line) and not SHARED_MEMORY.search(line))
    reason = next(said, "no space is left" if layer_full else None)
    if reason is None:
        return None
    reason, next_step = (
        reason.strip()[:LINE_CHARS],
        "Free space on the disk that it writes to.",
    )
    if policy.throws_away and policy.upper_bytes:
        limit = f"{policy.upper_bytes / 2**20:,.0f} MiB"
        reason += f"; what a trial writes may take {limit}, and is thrown away"
        next_step = f"Set {LAYER_FOLDER} to a folder on a disk with more space."
    return Failure(kind="disk-full", evidence=reason, next_step=next_step)


def denied_write(policy: SandboxPolicy, lines: Sequence[str], cwd: str) -> Failure | None:
    """Explain the first line on a write denied only by the isolation.

    The host may deny a write itself, and then the program's own message is the better one. So
    a line counts if it names a path that only we deny, or none as some libraries do.
    """
    for line in lines:
        pathless = policy.kind == "landlock" and DENIED_WITHOUT_A_PATH.search(line)
        if not pathless and not DENIED.search(line):
            continue
        names = ("".join(groups) for groups in _PATHS.findall(line))
        paths = [os.path.realpath(os.path.join(cwd, name)) for name in names]
        ours = next((path for path in paths if _is_ours(policy, path)), None)
        if ours or (pathless and not paths):
            write = f"a write to {ours}" if ours else "a write"
            where = "" if policy.throws_away else " outside the trial's own folders"
            evidence = f"{write}{where} was denied: {line.strip()[:LINE_CHARS]}"
            return Failure(
                kind="write-denied", evidence=evidence, next_step=_way_out(policy)
            )
    return None


def _way_out(policy: SandboxPolicy) -> str:
    if policy.throws_away:
        return (
            "An overlay covers what belongs to you. Let that output go below the project, your "
            "home or TMPDIR (output-flags in gpu-advisor.toml)."
        )
    return (
        "Let that output go below TMPDIR (output-flags in gpu-advisor.toml), or give "
        "--allow-writes. An overlay would let it through and throw it away, but does not hold "
        f"here ({policy.why_not_better})."
    )


def _is_ours(policy: SandboxPolicy, path: str) -> bool:
    if any(is_within(path, place) for place in (*policy.passes, *SYSTEM_TREES)):
        return False
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return os.access(place, os.W_OK)
