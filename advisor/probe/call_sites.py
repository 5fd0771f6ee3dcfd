"""Call sites: lines of user code that call something."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_foreign: Dict[str, bool] = {}


def call_site() -> str | None:
    """Innermost user frame as `file.py:line`.

    Without one it is the innermost frame outside torch.
    """
    frame: Any = sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((OWN, "<")):
            where = f"{shown(name)}:{frame.f_lineno}"
            if not installed(name):
                return where
            if fallback is None and f"{os.sep}torch{os.sep}" not in name:
                fallback = where
        frame = frame.f_back
    return fallback


def caller() -> Any:
    """The innermost frame that is neither ours nor torch's."""
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(OWN)
        or f"{os.sep}torch{os.sep}" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return frame


def is_foreign(code: Any) -> bool:
    """Return True for code that is not the user's."""
    name = code.co_filename
    known = _foreign.get(name)
    if known is None:
        known = _foreign[name] = name.startswith((OWN, "<")) or installed(name)
    return known


def installed(name: str) -> bool:
    """Return True for Python's own or library code."""
    library = os.path.dirname(os.__file__)
    return "site-packages" in name or "dist-packages" in name or name.startswith(library)


def shown(name: str) -> str:
    """Path relative to the working directory where possible."""
    here = os.getcwd() + os.sep
    full = os.path.abspath(name)
    return full[len(here) :] if full.startswith(here) else full
