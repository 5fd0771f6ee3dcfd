"""Trials of small programs under one kind of isolation."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor.model import Failure, MeasurePlan, Run
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import FORCED
from tests.runs import a_trial
from tests.support.processes import ran

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-Urm")
"""Runs a command where it may mount what it likes."""
TRIAL = """
import json, sys
from advisor.model import Candidate, MeasurePlan, Run, Trial
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import detect_isolation
project, scratch, *command = sys.argv[1:]
found = run_trial(Trial(
    id="1", purpose="baseline", label="original", candidate=Candidate(), cwd=project,
    command=tuple(command), scratch=scratch, plan=MeasurePlan(mode="whole"),
))
failure = None if isinstance(found, Run) else found.kind
output = found.evidence if failure else found.stdout_tail
offer = detect_isolation(project)
notes = found.notes if isinstance(found, Run) else []
print(json.dumps([found.isolation, output, offer.why_not_better, failure, notes]))
"""


class Outcome(NamedTuple):
    """Isolation of a trial, what it printed, and what else the host offers."""

    isolation: str
    output: str
    why_not_better: str
    failure: str | None
    notes: list[str]


def outcome_of(before: Sequence[str], folder: Path, *command: str, **how: Any) -> Outcome:
    """A trial in `folder`, from a process that is started through the words `before`."""
    scratch = folder.parent / "scratch"
    words = [*before, sys.executable, "-c", TRIAL, str(folder), str(scratch), *command]
    done = ran(*words, **how)
    assert done.returncode == 0, done.stderr
    return Outcome(*json.loads(done.stdout))


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
            "cwd": str(self.project),
            "scratch": str(self.folder / f"scratch-{number}"),
            "plan": MeasurePlan(mode="whole"),
        }
        return run_trial(a_trial(*command, env=env, **given | fields))

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
