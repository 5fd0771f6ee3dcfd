"""Self-test of one kind of isolation.

Run as `python -I -S selftest.py`, standard library only. stdin: {"policy": a SandboxPolicy, "cwd"}.
stdout: {"why": null if it holds, "attributes": whether layers may lie in memory}.
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

from advisor.sandbox.api import open_sandbox


def main() -> None:
    """Run one test in a temporary folder's child."""
    given = json.load(sys.stdin)
    folder = tempfile.mkdtemp(prefix="gpu-advisor-attempt-")
    child = os.fork()
    if not child:
        policy = given["policy"] | {"layers": folder}
        os.write(1, json.dumps(run_test(policy, given["cwd"])).encode())
        os._exit(0)
    os.waitpid(child, 0)
    shutil.rmtree(folder, ignore_errors=True)


def run_test(policy: dict[str, Any], cwd: str) -> dict[str, object]:
    """Enter the sandbox and try to write."""
    why, attributes = None, True
    try:
        may_write = os.access(cwd, os.W_OK)
        sandbox = open_sandbox(policy, cwd)
        sandbox.enter()
        os.chdir(cwd)
        sandbox.confine()
        if policy["kind"] == "landlock":
            why = _denied_write(policy["layers"])
        else:
            attributes = policy["private_memory"] and _tmpfs_has_attributes()
            why = _creation_problem(cwd) if may_write else None
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename else ""
        why = f"{place}{problem.strerror or problem}"
    return {"why": why, "attributes": attributes}


def _denied_write(folder: str) -> str | None:
    """Return None if outside writes are denied."""
    with contextlib.suppress(PermissionError):
        os.open(os.path.join(folder, "probe"), os.O_WRONLY | os.O_CREAT)
        return "a write that it should deny went through"
    return None


def _creation_problem(cwd: str) -> str | None:
    """Return a problem with creation in `cwd`, or None.

    An overlay that cannot copy up a folder denies what the host allows.
    """
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".gpu-advisor-attempt-", dir=cwd))
    except OSError as problem:
        return f"nothing can be made in {cwd}: {problem.strerror or problem}"
    return None


def _tmpfs_has_attributes() -> bool:
    """Return True if tmpfs supports user attributes."""
    path = Path("/dev/shm/gpu-advisor-attributes")  # noqa: S108  our own, if memory is private
    try:
        path.touch()
        os.setxattr(path, "user.gpu-advisor", b"y")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
