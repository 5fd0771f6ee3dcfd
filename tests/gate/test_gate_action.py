"""action.yml and the workflows: linted, and their own steps executed as GitHub would."""

from __future__ import annotations

import copy
import functools
import importlib.util
import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from gate_examples import around, failed, pair, program, program_of, run
from test_gate_github import fork_event

from advisor.errors import GATE_EXIT_CODES
from advisor.gate import texts
from advisor.gate.history import Series, Session, compare
from advisor.gate.records import HostEntry, Inputs
from advisor.gate.workbench import decided
from advisor.isolation.offer import FORCED
from tests.gate.repos import ROOT, STEADY, parse_outputs
from tests.gate.warm_python import warm_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.warm import Server

ACTION = ROOT / "action.yml"
WORKFLOWS = sorted(
    [
        *(ROOT / ".github" / "workflows").glob("*.yml"),
        *(ROOT / "docs/examples/workflows").glob("*.yml"),
    ]
)
BASH = shutil.which("bash") or "/bin/bash"
OUTPUTS = {
    "verdict", "slowdown-pct", "ci-low-pct", "ci-high-pct", "mde-pct", "pairs",
    "discarded-pairs", "report-json", "report-md",
}  # fmt: skip


@functools.cache
def parsed(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def load(path: Path) -> dict[str, Any]:
    return copy.deepcopy(parsed(path))


def steps_of(path: Path) -> list[dict[str, Any]]:
    content = load(path)
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


# --- lint ---------------------------------------------------------------------------------


def tool(name: str) -> str:
    found = shutil.which(
        name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if found is None:
        pytest.skip(f"{name} is not installed: pip install gpu-advisor[dev]")
    return found


def test_the_schemas_hold() -> None:
    for schema, files in (("actions", [ACTION]), ("workflows", WORKFLOWS)):
        done = subprocess.run(
            [tool("check-jsonschema"), "--builtin-schema", f"vendor.github-{schema}", *files],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [tool("zizmor"), "--offline", "--persona=auditor", "--format=plain", ACTION, *WORKFLOWS],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "No findings to report" in done.stdout


def test_actionlint_finds_nothing() -> None:
    """Nor in the workflow that the guide begins with, which says all but its trigger."""
    config = ("-no-color", "-config-file", str(ROOT / ".github" / "actionlint.yaml"))
    lint = (tool("actionlint"), *config, "-shellcheck", tool("shellcheck"))
    guide = (ROOT / "docs" / "action.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (shown,) = (text for text in examples if "jobs:" in text)
    for files, given in ((list(map(str, WORKFLOWS)), ""), (["-"], f"on: pull_request\n{shown}")):
        done = subprocess.run(
            [*lint, *files], input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    """In the steps of the action; those of workflows actionlint shows to it."""
    scripts = []
    for step in (step for step in steps_of(ACTION) if "run" in step):
        scripts.append(tmp_path / step["name"].replace(" ", "-"))
        scripts[-1].write_text(step["run"])
    done = subprocess.run(
        [tool("shellcheck"), "--shell=bash", *scripts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.name)
def test_no_expression_reaches_a_shell_and_every_use_is_pinned(path: Path) -> None:
    for step in steps_of(path):
        assert "${{" not in step.get("run", "")
        if "uses" in step and step["uses"] != "./":
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
    for line in path.read_text().splitlines():
        if "@" + 40 * "0" in line:  # no commit: whoever copies the example must see that
            assert "# REPLACE the zeros" in line


def test_workflows_hold_no_more_than_they_need() -> None:
    for path in WORKFLOWS:
        content = load(path)
        assert content["permissions"] == {}
        triggers = content[True]  # YAML reads the key `on` as a boolean
        assert "pull_request_target" not in triggers
        if "workflow_run" in triggers:
            assert not any("checkout" in step.get("uses", "") for step in steps_of(path))
        for step in steps_of(path):
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_every_input_has_a_text_as_default_and_every_output_a_value() -> None:
    content = load(ACTION)
    for name, entry in content["inputs"].items():
        assert isinstance(entry["default"], str), name
        assert entry["description"]
    assert set(content["outputs"]) == OUTPUTS
    documented = (ROOT / "docs" / "action.md").read_text()
    for name in [*content["inputs"], *content["outputs"]]:
        assert f"`{name}`" in documented, name


# --- the steps, executed ------------------------------------------------------------------


@dataclass
class Step:
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

    def expression(self, text: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
        def value(match: re.Match[str]) -> str:
            for term in (part.strip() for part in match[1].split("||")):
                if term.startswith("inputs."):
                    found = inputs[term.removeprefix("inputs.")]
                elif term.startswith("steps.gate.outputs."):
                    found = outputs.get(term.removeprefix("steps.gate.outputs."), "")
                elif term == "runner.temp":
                    found = str(self.temp)
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


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private environment as the first step leaves it, without asking a package index."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    target = next((folder / "lib").glob("python*")) / "site-packages"
    (target / "own.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]))
    return folder


@pytest.fixture
def own_runner(repo, tmp_path: Path, installed: Path) -> Runner:
    """Calls the gate by the interpreter of the private environment, as it is."""
    temp = tmp_path / "runner"
    (temp / "gpu-advisor").mkdir(parents=True)
    (temp / "gpu-advisor" / "venv").symlink_to(installed)
    return Runner(workspace=repo.path, temp=temp)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, gpu_advisor: Server) -> Iterator[Path]:
    """An environment whose interpreter has imported the gate before it is called."""
    folder = tmp_path_factory.mktemp("warm") / "bin"
    folder.mkdir()
    with warm_python(folder, gpu_advisor):
        yield folder.parent


@pytest.fixture
def runner(own_runner: Runner, warm: Path) -> Runner:
    """Where no rule is about that interpreter."""
    venv = own_runner.temp / "gpu-advisor" / "venv"
    venv.unlink()
    venv.symlink_to(warm)
    return own_runner


DISCARDED = [
    p.model_copy(update={"discarded": "power brake in 30% of the busy samples of head"})
    for p in program_of(around(100, 4), around(100, 4)).pairs
]
SAVED = {
    "pass": program_of(around(100), around(100)),
    "regression": program_of(around(100), around(80)),
    "inconclusive": program_of(around(100, 3), around(80, 3)),
    "no-baseline": program([pair(1, failed("base", "crash-start"), run("head", {"train": 1.0}))]),
    "invalid": program(DISCARDED),
    "error": program([pair(1, run("base", {"train": 1.0}), failed("head", "crash-start"))]),
}


@pytest.mark.parametrize("verdict", GATE_EXIT_CODES)
def test_each_verdict_sets_all_outputs_and_ends_as_documented(runner, verdict: str) -> None:
    record = decided([SAVED[verdict]], Inputs(), HostEntry(), "ab")
    assert record.verdict == verdict
    (runner.temp / "saved.json").write_text(texts.dump(record))
    found = runner.call(
        mode="replay", replay=str(runner.temp / "saved.json"), on_inconclusive="fail"
    )
    assert found.code == GATE_EXIT_CODES[verdict], found.log
    assert set(found.outputs) == OUTPUTS
    assert found.action_outputs["verdict"] == verdict
    assert found.summary.startswith("# Throughput gate: ")
    level = "notice" if verdict == "pass" else "error"
    assert f"\n::{level} title=" in found.log
    assert Path(found.outputs["report-md"]).is_file()
    assert Path(found.outputs["report-json"]).is_file()


@pytest.mark.parametrize("verdict", ["inconclusive", "no-baseline"])
def test_what_is_not_proven_is_a_warning_by_default(runner, verdict: str) -> None:
    saved = decided([SAVED[verdict]], Inputs(), HostEntry(), "ab")
    (runner.temp / "saved.json").write_text(texts.dump(saved))
    found = runner.call(mode="replay", replay=str(runner.temp / "saved.json"))
    assert found.code == 0
    assert found.outputs["verdict"] == verdict
    assert "::warning " in found.log


def test_an_installation_that_fails_is_an_error_and_no_regression(runner) -> None:
    runner.env["PATH"] = "/nowhere"
    found = runner.call(skip_install=False)
    assert found.code not in {0, 1}
    assert found.action_outputs["verdict"] == "error"
    assert found.action_outputs["pairs"] == "0"


SHELL_WORDS = "$(touch hacked)`touch hacked`\"; touch hacked; \"'; touch hacked; '"


@pytest.mark.parametrize("text", [f"{SHELL_WORDS}\n--enforce=true", "--x"])
def test_inputs_are_literal(runner, repo, text: str) -> None:
    """No input but the two that are shell strings ever meets a shell."""
    repo.commit({"x": "1"})
    shell = {"command", "setup", "working-directory", "artifact-name"}
    names = load(ACTION)["inputs"].keys() - shell
    found = runner.call(command="exit 1", **{name.replace("-", "_"): text for name in names})
    assert not list(runner.workspace.rglob("hacked"))
    assert not list(runner.temp.glob("hacked"))
    assert found.code == 2
    assert set(found.outputs) == OUTPUTS
    assert found.outputs["verdict"] == "error"


def test_a_fork_is_refused_before_its_code_runs(runner, repo) -> None:
    repo.commit({"bench.py": "open('ran', 'w')"})
    repo.on_github(fork_event())
    runner.env["GITHUB_EVENT_PATH"] = repo.env["GITHUB_EVENT_PATH"]
    found = runner.call(command="python bench.py", setup="touch ran")
    assert found.code == 2
    assert found.outputs["verdict"] == "error"
    assert not (repo.path / "ran").exists()


def test_modules_of_the_checkout_do_not_stand_in_for_ours(own_runner, repo) -> None:
    """A pull request cannot decide its own gate with a package named like ours."""
    repo.commit({"advisor/__init__.py": "raise SystemExit(0)", "advisor/__main__.py": ""})
    own_runner.env["PYTHONPATH"] = str(repo.path)
    found = own_runner.call(command="exit 1")
    assert found.code == 0  # no baseline, a warning
    assert found.outputs["verdict"] == "no-baseline"


# --- another repository -------------------------------------------------------------------


def test_another_repository_consumes_the_action(runner, repo) -> None:
    """Its checkout, its program and its gpu-advisor.toml, called by the example workflow."""
    runner.env[FORCED] = "guard"
    workflow = load(ROOT / "docs/examples/workflows/gate-pull-request.yml")
    (step,) = (
        step for step in workflow["jobs"]["gate"]["steps"] if "gpu-advisor" in step.get("uses", "")
    )
    settings = '[workload.train]\ncommand = "python train.py"\nunit = "sample"\n'
    base = repo.commit({"train.py": STEADY.format(rate=100), "gpu-advisor.toml": settings})
    repo.git("checkout", "-q", "-b", "change")
    repo.commit({"train.py": STEADY.format(rate=98), "notes.md": "changed"})
    repo.on_github({
        "pull_request": {
            "base": {"sha": base, "ref": "main", "repo": {"full_name": "me/mine"}},
            "head": {"repo": {"full_name": "me/mine", "fork": False}},
        }
    })  # fmt: skip
    runner.env["GITHUB_EVENT_PATH"] = repo.env["GITHUB_EVENT_PATH"]
    found = runner.call(**{name.replace("-", "_"): text for name, text in step["with"].items()})
    assert found.code == 0, found.log
    assert found.outputs["verdict"] == "pass"
    assert float(found.outputs["slowdown-pct"]) == pytest.approx(2, abs=0.3)
    record = texts.read(Path(found.outputs["report-json"]))
    assert record.base.sha == base
    assert record.workloads[0].name == "train"
    folder = Path(found.outputs["report-md"]).parent
    assert (folder / "gate-comment.md").is_file()
    assert (folder / "gate-figures" / "gate-pairs.svg").is_file()


def test_the_nightly_job_confirms_against_the_last_good_commit(runner) -> None:
    """Its second step finds the commit that the report of a red night names."""
    good = [Session(created="", sha=40 * "a", units_per_s=100.0, processes=4)] * 10
    series = Series(workload="train", unit="sample", facts={}, sessions=good)
    found = decided([SAVED["pass"]], Inputs(), HostEntry(), "history")
    red = found.model_copy(update={"reason": compare(series, 80.0, 0.05).reason})
    (runner.temp / "night.json").write_text(texts.dump(red))
    (step,) = (
        step
        for step in steps_of(ROOT / "docs/examples/workflows/history-nightly.yml")
        if step.get("id") == "last"
    )
    step["env"] = {"REPORT": str(runner.temp / "night.json")}
    code, log, outputs, _ = runner.run_step(step, {})
    assert code == 0, log
    assert outputs["sha"] == 40 * "a"


TUNED = """
import json, sys, time
size = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.004 + 0.001 * size)
    print("done", size, "items", flush=True)
"""


@pytest.mark.slow
def test_the_tuning_job_leaves_diff_and_report(own_runner, repo) -> None:
    """Its steps after the installation, in a user's repository: artifact, summary, no push."""
    repo.commit({"infer.py": TUNED, "infer.json": '{"batch_size": 2}\n'})
    command = 'command = "python infer.py {config}"\nconfig = "infer.json"\nphase = "test"\n'
    command += 'unit-regex = "done ([0-9]+) items"\n'
    repo.commit({"gpu-advisor.toml": f"[workload.infer]\n{command}"})
    script = own_runner.temp / "gpu-advisor" / "bin" / "gpu-advisor"
    script.parent.mkdir()
    python = own_runner.temp / "gpu-advisor" / "venv" / "bin" / "python"
    script.write_text(f"#!{python}\nfrom advisor.__main__ import main; main()\n")
    script.chmod(0o755)
    tuned, summary = own_runner.temp / "tuned", ""
    for step in steps_of(ROOT / "docs/examples/workflows/tune.yml"):
        if "run" in step and "Install" not in step["name"]:
            code, log, _, shown = own_runner.run_step(
                step, {"config": "infer.json", "budget": "40s"}
            )
            assert code == 0, log
            summary += shown
            # As a longer budget would have left it.
            (repo.path / "infer.json").write_text('{"batch_size": 64}\n')
    assert '-{"batch_size": 2}\n+{"batch_size": 64}' in (tuned / "config.diff").read_text()
    assert (tuned / "report.md").read_text().startswith("# infer.json")
    assert (tuned / "report.json").is_file()
    assert summary.startswith("# infer.json")


WITH_PIP = """\
#!/bin/sh
# Python itself; but an environment gets the pip that is here, in place of one unpacked anew.
case " $* " in *" -m venv "*) set -- "$@" --without-pip ;; esac
{python} "$@" || exit
for site in {home}/venv/lib/python*/site-packages; do
  [ ! -d "$site" ] || ln -sfn {pip} "$site/pip"
done
"""
SHADOWS = ("venv.py", "logging.py", "pip.py", "sysconfig.py", "sitecustomize.py", "platform.py")


def test_no_module_of_the_checkout_is_run_by_the_installation(repo, tmp_path: Path) -> None:
    """Whatever it is called: it would run before anybody asked whose code it is."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("rm", "mkdir", "cp", "ln"):
        (tools / name).symlink_to(shutil.which(name) or name)
    pip = importlib.util.find_spec("pip")
    assert pip is not None
    python = WITH_PIP.format(
        python=sys.executable, home=tmp_path / "gpu-advisor", pip=Path(str(pip.origin)).parent
    )
    (tools / "python3.11").write_text(python)
    (tools / "python3.11").chmod(0o755)
    ran = tmp_path / "ran"
    repo.commit({name: f"open({str(ran)!r}, 'a').write(__file__)\n" for name in SHADOWS})
    env = {"PYTHONPATH": str(repo.path), "PIP_INDEX_URL": (tmp_path / "none").as_uri()}
    runner = Runner(workspace=repo.path, temp=tmp_path, env={**env, "PATH": str(tools)})
    found = runner.call(skip_install=False, command="python bench.py")
    assert found.code == 2, found.log  # there is no package index
    assert (tmp_path / "gpu-advisor" / "venv" / "bin" / "python").exists()
    assert not ran.exists(), ran.read_text()


def test_the_lock_names_every_dependency_with_its_hashes() -> None:
    """Of ours, and theirs: pip is told to take nothing else."""
    (install,) = (
        step["run"] for step in steps_of(ACTION) if "-m pip install" in step.get("run", "")
    )
    for flag in ("--no-deps", "--require-hashes", "--only-binary :all:", "requirements.lock"):
        assert flag in install
    lock = (ROOT / "requirements.lock").read_text()
    hashes = r"((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)"
    entries = re.findall(rf"^([\w.-]+)==\S+.*\n{hashes}", lock, re.MULTILINE)
    names = {name for name, _ in entries}
    assert len(names) == len(re.findall(r"^\S+==", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=!~ ;]", each)[0] for each in project["dependencies"]}
    assert wanted <= names
    for name in wanted:  # what those need is locked too
        for line in metadata.requires(name) or ():
            if "extra ==" not in line and "python_version <" not in line:
                needed = re.split(r"[<>=!~ ;(\[]", line)[0]
                assert needed.lower().replace("_", "-") in names, line


@pytest.mark.slow
def test_the_first_step_installs_without_touching_any_torch(repo, tmp_path: Path) -> None:
    """From a package index, into an environment of its own; then a whole gate with it."""
    temp = tmp_path / "runner"
    temp.mkdir()
    repo.commit({"bench.py": STEADY.format(rate=100)})
    repo.commit({"x": "1"})
    found = Runner(workspace=repo.path, temp=temp).call(
        skip_install=False, command="python bench.py"
    )
    assert found.code == 0, found.log
    assert found.outputs["verdict"] == "pass"
    packages = [path.name for path in (temp / "gpu-advisor/venv/lib").rglob("site-packages/*")]
    assert "gpu-advisor.pth" in packages
    assert (temp / "gpu-advisor" / "app" / "advisor" / "__main__.py").is_file()
    assert "torch" not in packages
