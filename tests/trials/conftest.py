"""Trials of the small programs in tests/fixtures/programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from advisor.isolation.offer import FORCED
from advisor.model import Candidate, Trial

PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "programs"

MakeTrial = Callable[..., Trial]


def program(name: str, *args: str) -> tuple[str, ...]:
    """The command that runs a program of the fixtures with this interpreter."""
    return (sys.executable, str(PROGRAMS / f"{name}.py"), *args)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working directory of a user's."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def make_trial(tmp_path: Path, work: Path) -> MakeTrial:
    """A trial of a command in `work`, with a scratch directory of its own."""

    def make(*command: str, **fields: Any) -> Trial:
        number = len(list(tmp_path.iterdir()))
        given: dict[str, Any] = {
            "id": f"{number:03d}",
            "purpose": "baseline",
            "label": "original",
            "candidate": Candidate(),
            "cwd": str(work),
            "scratch": str(tmp_path / f"scratch-{number}"),
        }
        return Trial(command=command, **given | fields)

    return make


@pytest.fixture
def by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither namespaces nor Landlock: the probe's guard is all there is."""
    monkeypatch.setenv(FORCED, "guard")


def processes_of(scratch: str) -> list[psutil.Process]:
    """Every living process of the trials in this folder, with their guardians and its keeper."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = scratch in process.environ().get("GPU_ADVISOR_SPEC", "")
            ours = ours or any(word.startswith(scratch) for word in process.cmdline())
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
