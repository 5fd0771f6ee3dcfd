"""Whatever a program does to files in a trial, the user's are what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.sandbox.policy import KINDS, Kind
from tests.support.isolation import outcome
from tests.support.ways import WAYS

NAMES = [name for name, way in WAYS.items() if not way.torch]
WITH_TORCH = [name for name, way in WAYS.items() if way.torch]
FREE = {"/dev/shm", "shared memory left"}
"""What Landlock lets through."""


def test_under_an_overlay_programs_write_as_they_like_and_nothing_is_changed() -> None:
    """Every way succeeds and reads back what it wrote; every file is byte for byte what it was.

    Modes, times and attributes too; nothing is left in shared places.
    """
    found = outcome("overlay", NAMES)
    assert {name: results.view for name, results in found.results.items() if results.view} == {}
    assert [name for name, results in found.results.items() if not results.untouched] == []
    assert found.left == ()


def test_under_landlock_every_write_is_denied() -> None:
    """Nothing is changed or added, modes, times and attributes included."""
    found = outcome("landlock", NAMES)
    assert [name for name, results in found.results.items() if not results.untouched] == []
    through = {name for name, results in found.results.items() if results.view is None}
    assert through == {*FREE, "a daemon that writes later"}  # it wrote to nobody's knowledge


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["overlay", "landlock"])
def test_what_torch_writes_is_held_too(kind: str) -> None:
    """Savers in C++, and loaders that share memory by files."""
    assert kind in {"overlay", "landlock"}
    found = outcome(kind, WITH_TORCH)  # type: ignore[arg-type]
    assert [name for name, results in found.results.items() if not results.untouched] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_that_shares_by_files_leaves_none(kind: Kind) -> None:
    """Whose processes end before they have unlinked them."""
    before = shared()
    found = outcome(kind, ["shared loader, file_system"])
    assert found.results["shared loader, file_system"].intact
    assert shared() <= before


def shared() -> set[str]:
    """What torch has in shared memory under its names."""
    return {path.name for path in Path("/dev/shm").glob("torch_*")}
