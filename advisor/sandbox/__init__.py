"""Isolation of writes by overlay, Landlock or guard.

All but `capabilities.py` and `policy.py` use only the standard library, for the supervisor.
"""

from collections.abc import Mapping
from typing import Any

from advisor.sandbox.base import Sandbox


def open_sandbox(policy: Mapping[str, Any], cwd: str) -> Sandbox:
    """Open the sandbox of a trial in `cwd`."""
    match policy["kind"]:
        case "overlay":
            from advisor.sandbox.overlay import Overlay

            return Overlay(policy, cwd)
        case "landlock":
            from advisor.sandbox.landlock import Landlock

            return Landlock(policy)
        case _:
            return Sandbox()
