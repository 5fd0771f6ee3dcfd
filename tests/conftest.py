"""Shared by all tests: where the repository is, and what each process finds there."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.machine import contention
from tests import light, nvml_stub, warm
from tests.light import sitecustomize  # noqa: F401  this process, too, does without

ROOT = Path(__file__).resolve().parents[1]

# Where a machine keeps Python from writing bytecode, each of thousands of processes would compile
# the probe and the tests again: a quarter of all CPU seconds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Small operations on two threads spin for a partner that another test's process keeps waiting.
os.environ["OMP_NUM_THREADS"] = "1"

LONGEST = (
    "test_optimize.py",
    "test_runs.py",
    "test_gate_real.py",
    "test_failures.py",
    "test_ordinary_programs.py",
    "test_remote.py",
    "test_command_on_cards.py",
    "test_matrix.py",
)
"""Files of tests begun first, in this order, so that no process is alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first; within a file the order stays."""
    turn = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turn.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _a_machine_to_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that run beside each other do not wait for each other, and none decides by others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(contention.UNSEEN, "unseen")
        patch.setenv("PYTHONPATH", light.PYTHONPATH, prepend=os.pathsep)
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)  # pytests that are tested are alone
        patch.setenv("GPU_ADVISOR_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        patch.setenv(nvml_stub.LIBRARIES, str(tmp_path_factory.mktemp("nvml")))
        yield


@pytest.fixture(autouse=True)
def _whole_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frameworks get torch as it is; the small programs of the others leave out what is slow."""
    if request.node.get_closest_marker("frameworks"):
        monkeypatch.setenv(light.WHOLE, "1")


@pytest.fixture
def others_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the rules about what others do on this machine."""
    monkeypatch.delenv(contention.UNSEEN)


@pytest.fixture(scope="session")
def gpu_advisor(_a_machine_to_itself: None) -> Iterator[warm.Server]:
    """Calls the command line in processes of their own, without the cost of its imports."""
    with warm.Server() as server:
        yield server
