"""Self-test of one kind of isolation.

Run as `python -I -S selftest.py`, standard library only. stdin: {"policy": a SandboxPolicy, "cwd"}.
stdout: why it does not hold, or null.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from advisor.sandbox import open_sandbox


def problem_of(policy: dict[str, Any], cwd: str) -> str | None:
    """Enter the sandbox and try to write; return what was wrong."""
    place = policy["layers"] if policy["kind"] == "landlock" else cwd
    may_write = os.access(place, os.W_OK)
    try:
        sandbox = open_sandbox(policy, cwd)
        sandbox.enter()
        os.chdir(cwd)
        sandbox.confine()
    except OSError as problem:
        named = f"{problem.filename}: " if problem.filename else ""
        return f"{named}{problem.strerror or problem}"
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".gpu-advisor-attempt-", dir=place))
    except OSError as problem:
        # An overlay that cannot copy up a folder denies what the host allows.
        if policy["kind"] == "landlock" or not may_write:
            return None
        return f"nothing can be made in {cwd}: {problem.strerror or problem}"
    return (
        "a write that it should deny went through" if policy["kind"] == "landlock" else None
    )


if __name__ == "__main__":
    print(json.dumps(problem_of(**json.load(sys.stdin))))
