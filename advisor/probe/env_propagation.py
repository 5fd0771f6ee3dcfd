"""Propagation of the probe into child processes.

Two variables start the probe in another process. A program that starts another one with an
environment that lacks them gets them added, and the trial's own folder for temporary files, which
in the user's would be left or denied.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Mapping, Sequence

from .session import Session

SPEC = "GPU_ADVISOR_SPEC"
SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
TEMPORARY = "TMPDIR"
OPTIONS_WITH_VALUE = "cmWX"
SHUT_OUT = "IES"
"""Options of Python's that ignore PYTHONPATH, or what is found through it."""
OTHER_ENVIRONMENT = ("sudo", "su", "doas", "docker", "podman", "singularity", "apptainer")
"""Commands that start a program with variables of its own."""
CLEARED = ("-i", "-", "--ignore-environment")
"""First words of `env` that clear the variables."""


def isolating(command: Sequence[str]) -> str | None:
    """Return the word of a command that keeps PYTHONPATH from the program."""
    words = [os.fsdecode(word) for word in command]
    program = os.path.basename(words[0]) if words else ""
    if program in OTHER_ENVIRONMENT:
        return program
    if program == "env":
        return words[1] if words[1:2] and words[1] in CLEARED else None
    return _isolating_option(words[1:]) if program.startswith("python") else None


def _isolating_option(words: Sequence[str]) -> str | None:
    """Return the option of Python that keeps the probe out."""
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return None
        for letter in word[1:]:
            if letter in SHUT_OUT:
                return word
            if letter in OPTIONS_WITH_VALUE:
                break
        if word[1:2] in ("c", "m"):
            return None
    return None


def carried(environment: Mapping[Any, Any]) -> dict[str, str]:
    """Return `environment` with the probe's variables added."""
    text = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    paths = [path for path in text.get("PYTHONPATH", "").split(os.pathsep) if path]
    added = {name: os.environ[name] for name in (SPEC, TEMPORARY) if name in os.environ}
    return {**added, **text, "PYTHONPATH": os.pathsep.join(dict.fromkeys([SITE, *paths]))}


def popen(subprocess: Any, session: Session) -> None:
    """Wrap `subprocess.Popen` once its module is imported."""
    build = subprocess.Popen.__init__

    @functools.wraps(build)
    def __init__(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        try:
            if kwargs.get("env") is not None:
                kwargs["env"] = carried(kwargs["env"])
        except Exception as problem:  # what the program asked for is done all the same
            session.fail(problem)
        build(self, args, *rest, **kwargs)

    subprocess.Popen.__init__ = __init__
