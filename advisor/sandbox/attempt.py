"""Tries one kind of isolation the way a trial would use it, and tells why it does not hold.

Run as `python -I -S attempt.py`, standard library only. stdin: {"told": a Confinement, "cwd"}.
stdout: one JSON object: `why` (null if it holds) and `attributes`, whether layers in memory can
hold what an overlay must note about folders. Its folder is its own, and gone afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from advisor.sandbox.inside import isolation


def main() -> None:
    """One attempt, told on stdout."""
    given = json.load(sys.stdin)
    folder = tempfile.mkdtemp(prefix="gpu-advisor-attempt-")
    child = os.fork()
    if not child:
        told = given["told"] | {"layers": folder}
        os.write(1, json.dumps(attempt(told, given["cwd"])).encode())
        os._exit(0)
    os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)


def attempt(told: dict[str, Any], cwd: str) -> dict[str, object]:
    """Move in, and see whether it holds. This process can do little else afterwards."""
    why = None
    attributes = True
    try:
        may_write = os.access(cwd, os.W_OK)
        tried = isolation(told, cwd)
        tried.enter()
        os.chdir(cwd)
        tried.confine()
        if told["kind"] == "landlock":
            why = _write_refused(told["layers"])
        else:
            attributes = _holds_attributes(told)
            why = _cannot_make(cwd) if may_write else None
    except OSError as problem:
        why = _told(problem)
    return {"why": why, "attributes": attributes}


def _told(problem: OSError) -> str:
    """`unshare: Operation not permitted`, `/proc/self/uid_map: Read-only file system`."""
    place = f"{problem.filename}: " if problem.filename else ""
    return f"{place}{problem.strerror or problem}"


def _write_refused(folder: str) -> str | None:
    """None if a write outside the allowed places is denied."""
    with contextlib.suppress(PermissionError):
        os.open(os.path.join(folder, "probe"), os.O_WRONLY | os.O_CREAT)
        return "a write that it should deny went through"
    return None


def _cannot_make(cwd: str) -> str | None:
    """Why the program could make nothing in `cwd`; None if it could.

    An overlay that cannot copy up a folder, or one above it, denies what the host allows.
    """
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".gpu-advisor-attempt-", dir=cwd))
    except OSError as problem:
        return f"nothing can be made in {cwd}: {problem.strerror or problem}"
    return None


def _holds_attributes(told: dict[str, Any]) -> bool:
    """tmpfs has user attributes since Linux 6.6."""
    path = Path("/dev/shm/gpu-advisor-attributes")  # noqa: S108  our own, if memory is private
    if not told["private_memory"]:
        return False
    try:
        path.touch()
        os.setxattr(path, "user.gpu-advisor", b"y")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
