"""GitHub's runner as a composite action needs it, and the action's own files as it reads them."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.gate.repos import ROOT, parse_outputs
from tests.support.processes import ran

ACTION = ROOT / "action.yml"
BASH = shutil.which("bash") or "/bin/bash"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def load(path: Path) -> dict[str, Any]:
    """A YAML file of the action or of a workflow."""
    return yaml.safe_load(path.read_text())


def steps_of(path: Path) -> list[dict[str, Any]]:
    """All steps of the action, or of a workflow's jobs, in order."""
    content = load(path)
    jobs = [content["runs"]] if "runs" in content else content["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def evaluated(text: str, facts: Mapping[str, str]) -> str:
    """`text` with the values of its expressions, each of names and texts joined by `||`."""

    def value(match: re.Match[str]) -> str:
        terms = [term.strip() for term in match[1].split("||")]
        values = [facts.get(term, term.strip("'") if "'" in term else "") for term in terms]
        return next(filter(None, values), "")

    return re.sub(r"\$\{\{(.+?)\}\}", value, text)


@dataclass
class Step:
    """Exit code, log, outputs and summary of a step, or of the whole action."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


@dataclass
class Runner:
    """Enough of GitHub's runner for a composite action."""

    workspace: Path
    temp: Path
    env: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    """Values of names in expressions."""

    def call(self, *, installs: bool = False, **given: str) -> Step:
        """Run the action with these inputs (`base_ref=...` is `base-ref`)."""
        content = load(ACTION)
        inputs = {name: entry["default"] for name, entry in content["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        assert inputs.keys() == content["inputs"].keys()
        self.facts |= {f"inputs.{name}": value for name, value in inputs.items()}
        asked = f"inputs.comment {'==' if inputs['comment'] == 'true' else '!='} 'true'"
        done = Step(0, "", {}, "")
        for step in steps_of(ACTION)[0 if installs else 1 :]:
            if "run" in step and asked in step.get("if", asked) and not done.code:
                found = self.run_step(step)
                done = Step(found.code, done.log + found.log, found.outputs, found.summary)
        outputs = {f"steps.gate.outputs.{name}": text for name, text in done.outputs.items()}
        for name, entry in content["outputs"].items():
            done.outputs[name] = evaluated(entry["value"], outputs)
        return done

    def run_step(self, step: dict[str, Any]) -> Step:
        """Run one step in bash."""
        assert step["shell"] == "bash"
        facts = {"runner.temp": str(self.temp), **self.facts}
        event, output, summary = (self.temp / f"step.{name}" for name in ("json", "out", "sum"))
        event.write_text("{}")
        output.write_text("")
        summary.write_text("")
        foreign = ("GITHUB_", "RUNNER_", "PYTHON")
        env = {
            **{name: text for name, text in os.environ.items() if not name.startswith(foreign)},
            "PATH": PATH,
            "XDG_CACHE_HOME": str(self.temp / "cache"),
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "push",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_ENVIRONMENT": "self-hosted",
            **{name: evaluated(text, facts) for name, text in step.get("env", {}).items()},
            **self.env,
        }
        words = (BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        cwd = self.workspace / evaluated(step.get("working-directory", "."), facts)
        done = ran(*words, cwd=cwd, env=env, errors="replace", timeout=300)
        outputs = parse_outputs(output.read_text())
        return Step(done.returncode, done.stdout + done.stderr, outputs, summary.read_text())
