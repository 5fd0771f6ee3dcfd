"""Shared by all tests: where the repository and the corpus are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import warm

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real configs, or a skip that says why."""
    folder = Path(os.environ.get("ADVISOR_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not (folder / "index.jsonl").is_file():
        pytest.skip(f"no corpus at {folder}; set ADVISOR_CORPUS to a folder with index.jsonl")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _a_machine_to_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that run beside each other do not wait for each other's lock of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_ADVISOR_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def gpu_advisor(_a_machine_to_itself: None) -> Iterator[warm.Server]:
    """Calls the command line in processes of their own, without the cost of its imports."""
    with warm.Server() as server:
        yield server
