"""Git repositories with a base and a head, and the gate run on them as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advisor.gate.schema import GateRecord
from advisor.sandbox.capabilities import FORCED
from tests.light import PYTHONPATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests import warm

ROOT = Path(__file__).resolve().parents[2]

STEADY = """
import os, pathlib, sys
rate = {rate}
# Differs a little from run to run, as clocks do.
print("throughput:", rate * (1 + (os.getpid() % 7) / 5000))
"""
"""A program that says a rate at once: gates of many processes stay short."""
LONGEST_S = 60.0
"""That a gate which was asked to end may take."""
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

    def commit(self, files: Mapping[str, str], message: str = "change") -> str:
        """Write `files` and commit; returns the commit."""
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        steps = 'git add -A && git commit -q --allow-empty -m "$0" && git rev-parse HEAD'
        done = subprocess.run(
            ["sh", "-c", steps, message], cwd=self.path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

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

    @contextlib.contextmanager
    def begun(self, *args: str) -> Iterator[Begun]:
        """`gpu-advisor gate` while it runs; killed at the end of the context."""
        said, told = self.out / "said", self.out / "told"
        told.touch()
        call = self.gpu_advisor.start(
            self.words(*args), cwd=self.path, env=self.environment(), stdout=said, stderr=told
        )
        try:
            yield Begun(call, said, told)
        finally:
            if call.poll() is None:
                os.kill(call.pid, signal.SIGKILL)
                call.wait(LONGEST_S)

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
            "GITHUB_EVENT_NAME": "push",
            "RUNNER_ENVIRONMENT": "self-hosted",
            **env,
        }
        return self


@dataclass
class Begun:
    """A gate that runs."""

    call: warm.Call
    said: Path
    """Its stdout."""
    told: Path
    """Its stderr."""

    def until(self, words: str) -> None:
        """Wait for it to tell of `words`."""
        while words not in self.told.read_text():
            assert self.call.poll() is None, self.told.read_text()
            time.sleep(0.02)

    def stopped(self, number: int) -> int:
        """Its exit code after this signal."""
        os.kill(self.call.pid, number)
        return self.call.wait(LONGEST_S)


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


def new_repo(folder: Path, empty: Path, gpu_advisor: warm.Server) -> Repo:
    """A copy of the `empty` repository, in `folder`.

    Its programs mean no harm, and nothing isolates them: that is a quarter of what a process of
    theirs takes. Where isolation is the rule, a test asks for a kind of it or clears `env`.
    """
    path, out = folder / "project", folder / "out"
    shutil.copytree(empty, path, symlinks=True)
    out.mkdir()
    return Repo(path=path, out=out, gpu_advisor=gpu_advisor, env={FORCED: "guard"})


def make_empty(path: Path) -> None:
    """The repository on branch main, without a commit, that all others are copied from."""
    for words in (
        ("init", "-q", "-b", "main", "--template="),
        ("config", "user.email", "dev@example.com"),
        ("config", "user.name", "Dev"),
        ("config", "maintenance.auto", "false"),  # nothing is packed that soon
    ):
        subprocess.run(["git", "-C", str(path), *words], check=True)
    (path / ".git" / "hooks").mkdir()


def base_and_head(repo: Repo, base: str, head: str, name: str = "bench.py") -> Repo:
    """Commits base and head of one program."""
    repo.commit({name: base}, "base")
    repo.commit({name: head}, "head")
    return repo


def fork_event(*, fork: bool = True, head: str = "them/x", base: str = "us/x") -> dict:
    """What GitHub says of a pull request from `head`, a fork of `base` or not."""
    return {
        "pull_request": {
            "head": {"repo": {"fork": fork, "full_name": head}},
            "base": {"repo": {"full_name": base}, "sha": "0", "ref": "main"},
        }
    }
