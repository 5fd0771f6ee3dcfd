"""Programs that are scripts with modules of their own beside them, or modules of this checkout."""

from __future__ import annotations

from pathlib import Path

from tests.probe.program import with_torch

MODULE = Path(__file__).with_name("module.py")
"""Followed by a module's name, it is `python -m`."""


def run(script: Path, *flags: object, cwd: Path) -> str:
    """What it prints."""
    done = with_torch().call(str(script), *map(str, flags), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout
