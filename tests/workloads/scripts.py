"""Programs that are scripts with modules of their own beside them, or modules of this checkout."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.probe.program import with_torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

MODULE = Path(__file__).with_name("module.py")
"""Followed by a module's name, it is `python -m`."""


def run(script: Path, *flags: object, cwd: Path) -> str:
    """What it prints."""
    done = with_torch().call(str(script), *map(str, flags), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def beside(folder: Path, *names: str) -> Iterator[list[ModuleType]]:
    """The modules of a program's folder, imported as the program imports them."""
    sys.path.insert(0, str(folder))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
