"""Trials of small programs under one kind of isolation."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial
from advisor.runner import run_trial
from advisor.sandbox.capabilities import FORCED

NAMESPACE = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-Urm")
"""Runs a command where it may mount what it likes."""


@pytest.fixture(scope="session")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("isolation") / "project"


@pytest.fixture
def project(_place: Path) -> Path:
    """The user's project, with one file in it. For each path it is tried once what holds there."""
    shutil.rmtree(_place, ignore_errors=True)
    _place.mkdir()
    (_place / "mine.txt").write_text("precious")
    return _place


@dataclass(frozen=True)
class Do:
    """Trials in the project, with scratch directories of their own."""

    folder: Path
    project: Path

    def __call__(self, kind: str, *command: str, **fields: Any) -> Run | Failure:
        """Run Python code, or a command, to its own end under a kind."""
        number = len(list(self.folder.iterdir()))
        if len(command) == 1:
            command = (sys.executable, "-c", command[0])
        env = (*fields.pop("env", ()), (FORCED, kind))
        given: dict[str, Any] = {
            "id": f"{number:03d}",
            "purpose": "baseline",
            "label": "original",
            "candidate": Candidate(),
            "cwd": str(self.project),
            "scratch": str(self.folder / f"scratch-{number}"),
            "plan": MeasurePlan(mode="whole"),
        }
        return run_trial(Trial(command=command, env=env, **given | fields))

    def measured(self, kind: str, *command: str, **fields: Any) -> Run:
        outcome = self(kind, *command, **fields)
        assert isinstance(outcome, Run), outcome
        return outcome

    def failed(self, kind: str, *command: str, **fields: Any) -> Failure:
        outcome = self(kind, *command, **fields)
        assert isinstance(outcome, Failure), outcome
        return outcome


@pytest.fixture
def do(tmp_path: Path, project: Path) -> Do:
    return Do(tmp_path, project)
