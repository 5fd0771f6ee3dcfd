"""Lines of user code that call something."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Iterator

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def call_site() -> str | None:
    """Innermost user frame as `file.py:line`, else the innermost outside torch."""
    return user_site() or _site(caller())


def user_site() -> str | None:
    """Innermost line of user code."""
    return _site(_outside(is_foreign))


def caller() -> Any:
    """Innermost frame that is neither ours nor torch's."""
    return _outside(lambda n: n.startswith((OWN, "<")) or f"{os.sep}torch{os.sep}" in n)


def _outside(skipped: Callable[[str], bool]) -> Any:
    frame: Any = sys._getframe(2)
    while frame is not None and skipped(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def by_program() -> bool:
    """True if the program's own code called this, with nothing but Python's own between."""
    frame = _outside(
        lambda n: n.startswith((OWN, "<")) or (installed(n) and not _is_library(n))
    )
    return frame is not None and not is_foreign(frame.f_code.co_filename)


def _is_library(name: str) -> bool:
    return "site-packages" in name or "dist-packages" in name


def own_frames() -> Iterator[Any]:
    """Functions of the program's own that are under way, the innermost first."""
    frame: Any = sys._getframe()
    while frame is not None:
        if not is_foreign(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def frame_of(code: Any) -> Any:
    """Innermost call of a function that is under way; None where there is none."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=None)
def is_foreign(name: str) -> bool:
    """Return True for the file of a function that is not the program's own."""
    return name.startswith((OWN, "<")) or installed(name)


def installed(name: str) -> bool:
    """Return True for Python's own or library code."""
    return _is_library(name) or name.startswith(os.path.dirname(os.__file__))


def _site(frame: Any) -> str | None:
    """File and line, relative to the working directory where possible."""
    if frame is None:
        return None
    here = os.getcwd() + os.sep
    full = os.path.abspath(frame.f_code.co_filename)
    return f"{full[len(here) :] if full.startswith(here) else full}:{frame.f_lineno}"
