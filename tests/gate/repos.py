"""Git repositories with a base and a head, and the gate run on them as a user runs it."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from advisor.gate.schema import GateRecord
from advisor.sandbox.capabilities import FORCED
from tests import warm
from tests.light import PYTHONPATH
from tests.support.processes import ran

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = {
    "verdict", "slowdown-pct", "ci-low-pct", "ci-high-pct", "confidence", "pairs",
    "discarded-pairs", "report-json", "report-md",
}  # fmt: skip
"""Of the action."""
STEADY = """
import os, pathlib, sys
rate = {rate}
# Differs a little from run to run, as clocks do.
print("throughput:", rate * (1 + (os.getpid() % 7) / 5000))
"""
"""A program that says a rate at once: gates of many processes stay short."""
WARM_UPS = ("--max-minutes", "0.001")
"""Enough for one run of each arm, and no pair."""
GIT = (
    *("-c", "user.name=Dev", "-c", "user.email=dev@example.com"),
    *("-c", "maintenance.auto=false"),  # nothing is packed that soon
)


@dataclass
class Gated:
    """How one call of the gate ended."""

    code: int
    stdout: str
    stderr: str
    outputs: dict[str, str]
    summary: str
    folder: Path

    @property
    def record(self) -> GateRecord:
        return GateRecord.model_validate_json((self.folder / "gate.json").read_text())

    @property
    def warm_up_rates(self) -> dict[str, float]:
        """Rate of the one workload in the first run of each arm."""
        found = {}
        for run in self.record.programs[0].warm_ups:
            assert run.problem is None, self.stderr
            (found[run.arm],) = (round(rate.mean) for rate in run.rates.values())
        return found


@dataclass
class Repo:
    """A repository whose last commit is head and the one before it base."""

    path: Path
    out: Path
    gpu_advisor: warm.Server
    env: dict[str, str] = field(default_factory=dict)

    def git(self, *args: str) -> str:
        command = ["git", "-C", str(self.path), *GIT, *args]
        return ran(*command, check=True).stdout.strip()

    def commit(self, files: Mapping[str, str]) -> str:
        """Write `files` and commit; returns the commit."""
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def of(self, *programs: str) -> Self:
        """Commit versions of one program, of which the last two are base and head."""
        for program in programs:
            self.commit({"bench.py": program})
        return self

    def words(self, *args: str) -> list[str]:
        return ["gate", "--report", str(self.out / "gate.md"), *args]

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "advisor", *self.words(*args)]

    def environment(self) -> dict[str, str]:
        foreign = ("GITHUB_", "RUNNER_")
        return {
            **{name: text for name, text in os.environ.items() if not name.startswith(foreign)},
            "PYTHONPATH": PYTHONPATH,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.out / "cache"),
            **self.env,
        }

    def gate(self, *args: str) -> Gated:
        """Run `gpu-advisor gate` here."""
        done = self.gpu_advisor.call(*self.words(*args), cwd=self.path, env=self.environment())
        return self.ended(done.returncode, done.stdout, done.stderr)

    def run(self, command: list[str]) -> Gated:
        """Run a gate by a command of its own."""
        done = ran(*command, cwd=self.path, env=self.environment())
        return self.ended(done.returncode, done.stdout, done.stderr)

    def ended(self, code: int, stdout: str, stderr: str) -> Gated:
        output, summary = (self.out / name for name in ("output", "summary"))
        return Gated(
            code=code,
            stdout=stdout,
            stderr=stderr,
            outputs=parse_outputs(output.read_text()) if output.exists() else {},
            summary=summary.read_text() if summary.exists() else "",
            folder=self.out,
        )

    def on_github(self, event: Mapping[str, Any] | None = None, **env: str) -> Self:
        """The same, as a step of a job sees it."""
        (self.out / "event.json").write_text(json.dumps(event or {}))
        self.env |= {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_PATH": str(self.out / "event.json"),
            "GITHUB_OUTPUT": str(self.out / "output"),
            "GITHUB_STEP_SUMMARY": str(self.out / "summary"),
            "GITHUB_EVENT_NAME": "push",
            "RUNNER_ENVIRONMENT": "self-hosted",
            **env,
        }
        return self


def parse_outputs(text: str) -> dict[str, str]:
    """GITHUB_OUTPUT as GitHub reads it: `name=value`, or `name<<END`, lines, the END."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, arrows, delimiter = line.partition("<<")
        if not arrows:
            name, _, found[name] = line.partition("=")
            continue
        value = []
        while (body := next(lines, None)) != delimiter:
            if body is None:
                pytest.fail(f"the value of {name} never ends")
            value.append(body)
        found[name] = "\n".join(value)
    return found


def new_repo(folder: Path, gpu_advisor: warm.Server) -> Repo:
    """An empty repository on branch main, in `folder`.

    Its programs mean no harm, and nothing isolates them: that is a quarter of what a process of
    theirs takes. Where isolation is the rule, a test asks for a kind of it or clears `env`.
    """
    path, out = folder / "project", folder / "out"
    path.mkdir()
    out.mkdir()
    repo = Repo(path=path, out=out, gpu_advisor=gpu_advisor, env={FORCED: "guard"})
    repo.git("init", "-q", "-b", "main", "--template=")
    (path / ".git" / "hooks").mkdir()
    return repo


def fork_event(*, fork: bool = True, head: str = "them/x", base: str = "us/x") -> dict:
    """What GitHub says of a pull request from `head`, a fork of `base` or not."""
    return {
        "pull_request": {
            "head": {"repo": {"fork": fork, "full_name": head}},
            "base": {"repo": {"full_name": base}, "sha": "0", "ref": "main"},
        }
    }
