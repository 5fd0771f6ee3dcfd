"""Whatever a program does to files in a trial, the user's are what they were."""

from pathlib import Path

import pytest

from advisor.sandbox.policy import KINDS
from tests.support.isolation import outcome
from tests.support.ways import PYTHON, SHELL, TORCH

NAMES = [*PYTHON, *SHELL]
FREE = {"/dev/shm", "shared memory left"}
"""What Landlock lets through."""


def test_under_an_overlay_programs_write_as_they_like_and_nothing_is_changed() -> None:
    """Every way succeeds and reads back what it wrote; every file is byte for byte what it was.

    Modes, times and attributes too; nothing is left in shared places.
    """
    found = outcome("overlay", NAMES)
    assert {name: view for name, view in found.views.items() if view} == {}
    assert found.touched == ()
    assert found.left == ()


def test_under_landlock_every_write_is_denied() -> None:
    """Nothing is changed or added, modes, times and attributes included."""
    found = outcome("landlock", NAMES)
    assert found.touched == ()
    through = {name for name, view in found.views.items() if view is None}
    assert through == {*FREE, "a daemon that writes later"}  # it wrote to nobody's knowledge


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_torch_writes_is_held_too(kind) -> None:
    """Savers in C++, and loaders that share memory by files, of which none is left."""
    before = shared()
    assert outcome(kind, list(TORCH)).touched == ()
    assert shared() <= before


def shared() -> set[str]:
    """What torch has in shared memory under its names."""
    return {path.name for path in Path("/dev/shm").glob("torch_*")}
