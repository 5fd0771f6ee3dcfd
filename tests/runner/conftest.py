"""Trials of the small programs in tests/fixtures/programs."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from advisor.model import Failure, Run, Trial
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import FORCED
from tests.runs import a_trial

PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "programs"

DEADLINE_S = 30.0
MakeTrial = Callable[..., Trial]


def program(name: str, *args: str) -> tuple[str, ...]:
    """The command that runs a program of the fixtures with this interpreter."""
    return (sys.executable, str(PROGRAMS / f"{name}.py"), *args)


@pytest.fixture(scope="session")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials") / "work"


@pytest.fixture
def work(_place: Path) -> Path:
    """A working directory of a user's, empty. For each path it is tried once what isolates it."""
    shutil.rmtree(_place, ignore_errors=True)
    _place.mkdir()
    return _place


@pytest.fixture
def make_trial(tmp_path: Path, work: Path) -> MakeTrial:
    """A trial of a command in `work`, with a scratch directory of its own."""

    def make(*command: str, **fields: Any) -> Trial:
        number = len(list(tmp_path.iterdir()))
        places = {"cwd": str(work), "scratch": str(tmp_path / f"scratch-{number}")}
        return a_trial(*command, **{"id": f"{number:03d}", **places, **fields})

    return make


def measured(trial: Trial) -> Run:
    """The run of a trial that must be measured."""
    outcome = run_trial(trial)
    assert isinstance(outcome, Run), outcome
    return outcome


def failed(trial: Trial) -> Failure:
    """The failure of a trial that must fail."""
    outcome = run_trial(trial)
    assert isinstance(outcome, Failure), outcome
    return outcome


@pytest.fixture
def by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither namespaces nor Landlock: the probe's guard is all there is."""
    monkeypatch.setenv(FORCED, "guard")


def processes_of(scratch: str) -> list[psutil.Process]:
    """Every living process of the trials in this folder, with their supervisors."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        facts = process.info
        words = [*(facts["cmdline"] or ()), (facts["environ"] or {}).get("GPU_ADVISOR_SPEC", "")]
        if facts["status"] != psutil.STATUS_ZOMBIE and any(w.startswith(scratch) for w in words):
            found.append(process)
    return found


def reached(state: Callable[[], object]) -> bool:
    """Wait for `state`; False if it does not come."""
    deadline = time.monotonic() + DEADLINE_S
    while not state():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
