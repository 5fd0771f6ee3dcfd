"""Propagation of the probe into child processes.

Two variables start the probe in another process. A program that replaces or starts another one
with an environment that lacks them gets them added, and the trial's own folder for temporary
files, which in the user's would be left or denied.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Sequence

from .session import Session

SPEC = "GPU_ADVISOR_SPEC"
SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
TEMPORARY = "TMPDIR"
OPTIONS_WITH_VALUE = "cmWX"
SHUT_OUT = "IES"
"""Options of Python's that ignore PYTHONPATH, or what is found through it."""


def isolating(command: Sequence[str]) -> str | None:
    """Return the option that keeps the probe out."""
    words = [os.fsdecode(word) for word in command]
    if not words or not os.path.basename(words[0]).startswith("python"):
        return None
    for word in words[1:]:
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


def carried(environment: Any, spec_path: str) -> Any:
    """Return `environment` with the probe's variables added."""
    text = {os.fsdecode(name): os.fsdecode(value) for name, value in dict(environment).items()}
    paths = [path for path in text.get("PYTHONPATH", "").split(os.pathsep) if path]
    if text.get(SPEC) == spec_path and SITE in paths:
        return environment
    whole = {name: value for name, value in dict(environment).items() if _plain(name)}
    if TEMPORARY not in text and TEMPORARY in os.environ:
        whole[TEMPORARY] = os.environ[TEMPORARY]
    whole[SPEC] = spec_path
    whole["PYTHONPATH"] = os.pathsep.join([SITE, *(path for path in paths if path != SITE)])
    return whole


def _plain(name: Any) -> bool:
    return os.fsdecode(name) not in (SPEC, "PYTHONPATH")


def watch(session: Session, spec_path: str) -> None:
    """Wrap process replacement and low-level process starts."""
    for name in ("execve", "posix_spawn", "posix_spawnp"):
        original = getattr(os, name, None)
        if original is not None:
            setattr(os, name, _wrapped(session, spec_path, original))


def _wrapped(session: Session, spec_path: str, original: Any) -> Any:
    @functools.wraps(original)
    def start(path: Any, argv: Any, env: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            env = carried(env, spec_path)
        except Exception as problem:  # what the program asked for is done all the same
            session.fail(problem)
        return original(path, argv, env, *args, **kwargs)

    return start


def popen(subprocess: Any, session: Session, spec_path: str) -> None:
    """Wrap `subprocess.Popen` once its module is imported."""
    build = subprocess.Popen.__init__

    @functools.wraps(build)
    def __init__(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        try:
            if kwargs.get("env") is not None:
                kwargs["env"] = carried(kwargs["env"], spec_path)
        except Exception as problem:
            session.fail(problem)
        build(self, args, *rest, **kwargs)

    subprocess.Popen.__init__ = __init__
