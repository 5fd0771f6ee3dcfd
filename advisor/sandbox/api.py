"""Choice of the isolation for the supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.sandbox.base import Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping


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
