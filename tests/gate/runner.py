"""GitHub's runner as a composite action needs it, and the action's own files as it reads them."""

from __future__ import annotations

import copy
import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.gate.repos import ROOT, parse_outputs

ACTION = ROOT / "action.yml"
BASH = shutil.which("bash") or "/bin/bash"
OUTPUTS = {
    "verdict", "slowdown-pct", "ci-low-pct", "ci-high-pct", "confidence", "pairs",
    "discarded-pairs", "report-json", "report-md",
}  # fmt: skip


@functools.cache
def _parsed(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def load(path: Path) -> dict[str, Any]:
    """A YAML file of the action or of a workflow, for the caller to change."""
    return copy.deepcopy(_parsed(path))


def steps_of(path: Path) -> list[dict[str, Any]]:
    """All steps of the action, or of a workflow's jobs, in order."""
    content = load(path)
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


@dataclass
class Step:
    """What came of a call: exit code, log, outputs of the gate and of the action, summary."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str
    action_outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Runner:
    """Enough of GitHub's runner for a composite action."""

    workspace: Path
    temp: Path
    env: dict[str, str] = field(default_factory=dict)
    github: dict[str, str] = field(default_factory=dict)
    """Facts of the `github` context."""

    def expression(self, text: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            for term in (part.strip() for part in match[1].split("||")):
                if term.startswith("inputs."):
                    found = inputs[term.removeprefix("inputs.")]
                elif term.startswith("steps.gate.outputs."):
                    found = outputs.get(term.removeprefix("steps.gate.outputs."), "")
                elif term == "runner.temp":
                    found = str(self.temp)
                elif term.startswith("github."):
                    found = self.github.get(term.removeprefix("github."), "")
                else:
                    found = term.strip("'")
                if found:
                    return found
            return ""

        return re.sub(r"\$\{\{(.+?)\}\}", value, text)

    def call(self, *, skip_install: bool = True, **given: str) -> Step:
        """Run the action with these inputs (`base_ref=...` is `base-ref`)."""
        content = load(ACTION)
        inputs = {name: entry["default"] for name, entry in content["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        assert set(inputs) == set(content["inputs"])
        failed_code, log, outputs, summary = 0, "", {}, ""
        for number, step in enumerate(content["runs"]["steps"]):
            always = "always()" in step.get("if", "")
            asked = re.search(r"inputs.comment ([!=]=) 'true'", step.get("if", ""))
            if asked and (asked[1] == "==") is not (inputs["comment"] == "true"):
                continue
            if "run" not in step or (number == 0 and skip_install) or (failed_code and not always):
                continue
            code, said, set_, shown = self.run_step(step, inputs)
            failed_code, log = failed_code or code, log + said
            outputs |= set_ if step.get("id") == "gate" else {}
            summary += shown
        conclusions = {
            name: self.expression(entry["value"], inputs, outputs)
            for name, entry in content["outputs"].items()
        }
        return Step(failed_code, log, outputs, summary, conclusions)

    def event(self) -> Path:
        """The file of a push."""
        path = self.temp / "event.json"
        path.write_text("{}")
        return path

    def run_step(
        self, step: dict[str, Any], inputs: dict[str, str]
    ) -> tuple[int, str, dict[str, str], str]:
        assert step["shell"] == "bash"
        script, output, summary = (self.temp / f"step.{name}" for name in ("sh", "out", "sum"))
        script.write_text(step["run"])
        output.write_text("")
        summary.write_text("")
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("GITHUB_", "RUNNER_", "PYTHON"))
        }
        env = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.temp / "cache"),
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "push",
            "GITHUB_EVENT_PATH": str(self.event()),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_ENVIRONMENT": "self-hosted",
            **self.env,
            **{k: self.expression(v, inputs, {}) for k, v in step.get("env", {}).items()},
        }
        folder = self.expression(step.get("working-directory", "."), inputs, {})
        done = subprocess.run(
            [BASH, "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace / folder, env=env, capture_output=True, text=True,
            errors="replace", timeout=300, check=False,
        )  # fmt: skip
        return (
            done.returncode,
            done.stdout + done.stderr,
            parse_outputs(output.read_text()),
            summary.read_text(),
        )
