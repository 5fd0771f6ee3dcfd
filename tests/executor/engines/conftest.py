"""Locks and a working directory of the tests of engines."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else measures on this host."""
    monkeypatch.setenv("GPU_ADVISOR_RUNTIME_DIR", str(tmp_path / "locks"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program runs. For each path it is tried once what isolates it."""
    return tmp_path_factory.mktemp("work")
