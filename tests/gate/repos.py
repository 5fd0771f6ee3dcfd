"""Git repositories with a base and a head, and the gate run on them as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advisor.gate.records import GateRecord
from advisor.isolation.offer import FORCED
from tests.light import PYTHONPATH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests import warm

ROOT = Path(__file__).resolve().parents[2]

STEADY = """
import os, pathlib, sys
rate = {rate}
# Differs a little from run to run, as clocks do.
print("throughput:", rate * (1 + (os.getpid() % 7) / 5000))
"""
"""A program that says a rate at once: gates of many processes stay short."""
WARM_UPS = ("--max-minutes", "0.01")
"""Enough for one run of each arm, and no pair."""


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
    def json(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.stdout)
        return loaded


@dataclass
class Repo:
    """A repository whose last commit is head and the one before it base."""

    path: Path
    out: Path
    gpu_advisor: warm.Server
    env: dict[str, str] = field(default_factory=dict)

    def git(self, *args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *args], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str | None], message: str = "change") -> str:
        """Write `files` (None removes one) and commit; returns the commit."""
        for name, text in files.items():
            path = self.path / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def words(self, *args: str) -> list[str]:
        return ["gate", "--report", str(self.out / "gate.md"), *args]

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "advisor", *self.words(*args)]

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "RUNNER_"))}
        return {
            **base,
            "PYTHONPATH": PYTHONPATH,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.out / "cache"),
            **self.env,
            **(env or {}),
        }

    def gate(self, *args: str, env: Mapping[str, str] | None = None) -> Gated:
        """Run `gpu-advisor gate` here."""
        done = self.gpu_advisor.call(*self.words(*args), cwd=self.path, env=self.environment(env))
        return self.ended(done.returncode, done.stdout, done.stderr)

    def ended(self, code: int, stdout: str, stderr: str) -> Gated:
        output, summary = self.out / "output", self.out / "summary"
        return Gated(
            code=code,
            stdout=stdout,
            stderr=stderr,
            outputs=parse_outputs(output.read_text()) if output.exists() else {},
            summary=summary.read_text() if summary.exists() else "",
            folder=self.out,
        )

    def on_github(self, event: Mapping[str, Any] | None = None, **env: str) -> Repo:
        """The same, as a step of a job sees it."""
        (self.out / "event.json").write_text(json.dumps(event or {}))
        self.env |= {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_PATH": str(self.out / "event.json"),
            "GITHUB_OUTPUT": str(self.out / "output"),
            "GITHUB_STEP_SUMMARY": str(self.out / "summary"),
            "RUNNER_ENVIRONMENT": "self-hosted",
            **env,
        }
        return self


def parse_outputs(text: str) -> dict[str, str]:
    """GITHUB_OUTPUT as GitHub reads it: `name<<DELIMITER`, lines, the delimiter."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, arrows, delimiter = line.partition("<<")
        if not arrows:
            name, _, value = line.partition("=")
            found[name] = value
            continue
        value = []
        for body in lines:
            if body == delimiter:
                break
            value.append(body)
        else:
            pytest.fail(f"the value of {name} never ends")
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
    made = Repo(path=path, out=out, gpu_advisor=gpu_advisor, env={FORCED: "guard"})
    made.git("init", "-q", "-b", "main")
    made.git("config", "user.email", "dev@example.com")
    made.git("config", "user.name", "Dev")
    return made


def base_and_head(repo: Repo, base: str | None, head: str | None, name: str = "bench.py") -> Repo:
    """Commits base and head of one program; None where there is none."""
    repo.commit({"README.md": "x", **({name: base} if base is not None else {})}, "base")
    changed = {name: head} if head is not None or base is not None else {}
    repo.commit(changed, "head")
    return repo
