"""Propagation of the probe into child processes, whatever their environment."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, Sequence

from .session import Patches, Session

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
CARRIED = ("GPU_ADVISOR_SPEC", "TMPDIR")
"""Of the trial: in another temporary folder files would be left or denied."""
ISOLATING = re.compile(
    r"(?:\S*/)?(?:(sudo|su|doas|docker|podman|singularity|apptainer)"
    r"|env (-i|-|--ignore-environment)"
    r"|python[\d.]*(?: -[BbOPdhiqRsuvx]+)* (-[BbOPdhiqRsuvx]*[IES]\w*))(?: |$)"
)
"""Commands that set or clear variables; options of Python without PYTHONPATH or site."""


def isolating(command: Sequence[str]) -> str | None:
    """Return the word of a command that keeps PYTHONPATH from the program."""
    match = ISOLATING.match(" ".join(map(os.fsdecode, command)))
    return next(filter(None, match.groups())) if match else None


def carried(environment: Mapping[Any, Any]) -> dict[str, str]:
    """Return `environment` with the probe's variables added."""
    text = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    paths = [path for path in text.get("PYTHONPATH", "").split(os.pathsep) if path]
    added = {name: os.environ[name] for name in CARRIED if name in os.environ}
    return {**added, **text, "PYTHONPATH": os.pathsep.join(dict.fromkeys([SITE, *paths]))}


def popen(subprocess: Any, session: Session) -> None:

    @Patches().wrap(subprocess.Popen, "__init__")
    def __init__(build: Any, self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        try:
            if kwargs.get("env") is not None:
                kwargs["env"] = carried(kwargs["env"])
        except Exception as problem:  # what was asked for is still done
            session.fail(problem)
        build(self, args, *rest, **kwargs)
