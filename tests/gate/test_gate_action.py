"""The action's own steps and those of the example workflows, executed as GitHub would."""

from __future__ import annotations

import os
import site
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gate_examples import program_of, record_of

from advisor.errors import GATE_EXIT_CODES
from advisor.gate import report
from advisor.gate.history import Session, predict
from advisor.sandbox.capabilities import FORCED
from tests.gate.repos import ROOT, STEADY, fork_event
from tests.gate.runner import ACTION, OUTPUTS, Runner, load, steps_of
from tests.gate.warm_python import warm_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.warm import Server


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


STEADY_100 = STEADY.format(rate=100)
GATES = {
    "pass": (STEADY_100, STEADY.format(rate=98), "python bench.py"),
    "regression": (STEADY_100, STEADY.format(rate=80), "python bench.py"),
    "inconclusive": (STEADY_100, STEADY_100, "python bench.py"),
    "no-baseline": ("raise SystemExit(3)", STEADY_100, "python bench.py"),
    "invalid": (STEADY_100, STEADY_100 + "# changed", "python {head}/bench.py"),
    "error": (STEADY_100, "raise SystemExit(3)", "python bench.py"),
}
"""Base, head and command that come to each verdict."""


@pytest.mark.parametrize("verdict", GATE_EXIT_CODES)
def test_each_verdict_sets_all_outputs_and_ends_as_documented(runner, two, verdict: str) -> None:
    """By the inputs' defaults a gate that proves nothing is a warning."""
    base, head, command = GATES[verdict]
    repo = two(base, head)
    minutes = "0.01" if verdict == "inconclusive" else "30"
    found = runner.call(command=command.format(head=repo.path), max_minutes=minutes)
    open_ = verdict in {"inconclusive", "no-baseline"}
    assert found.code == (0 if open_ else GATE_EXIT_CODES[verdict]), found.log
    assert set(found.outputs) == OUTPUTS
    assert found.action_outputs["verdict"] == verdict
    assert found.summary.startswith("# Throughput gate: ")
    level = "notice" if verdict == "pass" else "warning" if open_ else "error"
    assert f"\n::{level} title=" in found.log
    folder = Path(found.outputs["report-json"]).parent
    assert (folder / "gate.json").is_file()
    posted = comment_of(runner, folder / "gate.json")
    assert posted.startswith("<!-- gpu-advisor gate -->\n\n### Throughput gate: ")
    assert posted.strip() in (folder / "gate-comment.md").read_text()


def test_the_first_gate_of_a_repository_has_no_baseline(runner, repo) -> None:
    repo.commit({"bench.py": STEADY_100})
    found = runner.call(command="python bench.py", on_inconclusive="fail")
    assert (found.code, found.action_outputs["verdict"]) == (3, "no-baseline"), found.log
    assert "first commit" in found.summary


GH = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *GET*pulls*) echo 7 ;;
  *PATCH*|*POST*)
    for word; do
      case "$word" in body=@*) cp "${{word#body=@}}" {log}.md ;; esac
    done ;;
  *paginate*) cat {log}.known ;;
esac
"""
"""Stands in for GitHub's program: notes each call, and keeps the comment."""


def comment_of(runner: Runner, record: Path, known: str = "") -> str:
    """Comment that the action posts of a workflow run's record."""
    tools, log = runner.temp / "tools", runner.temp / "gh"
    tools.mkdir(exist_ok=True)
    (tools / "gh").write_text(GH.format(log=log))
    (tools / "gh").chmod(0o755)
    Path(f"{log}.known").write_text(known)
    fetched = runner.temp / "gpu-advisor" / "fetched"
    fetched.mkdir(exist_ok=True)
    (fetched / "gate.json").write_bytes(record.read_bytes())
    (fetched / "gate-comment.md").write_text("@everybody: text of the artifact")
    runner.github = {"repository": "us/x", "event.workflow_run.head_branch": "change"}
    runner.env["PATH"] = f"{tools}:{os.environ['PATH']}"
    found = runner.call(comment="true")
    assert found.code == 0, found.log
    assert "repos/us/x/pulls" in log.read_text()
    return Path(f"{log}.md").read_text()


def test_a_comment_that_is_there_is_replaced(runner, tmp_path: Path) -> None:
    record = tmp_path / "gate.json"
    record.write_text(record_of(program_of([1.0], [1.0], "@octocat")).model_dump_json())
    posted = comment_of(runner, record, known="42")
    assert "PATCH repos/us/x/issues/comments/42" in (runner.temp / "gh").read_text()
    assert "@octocat" not in posted


def test_a_record_that_is_malformed_is_not_posted(runner, tmp_path: Path) -> None:
    record = tmp_path / "gate.json"
    record.write_text('{"verdict": "pass"}')
    with pytest.raises(AssertionError, match="could not be read"):
        comment_of(runner, record)
    assert not (runner.temp / "gh").exists()


def test_an_installation_that_fails_is_an_error_and_no_regression(runner) -> None:
    runner.env["PATH"] = "/nowhere"
    found = runner.call(skip_install=False)
    assert found.code not in {0, 1}
    assert found.action_outputs["verdict"] == "error"
    assert found.action_outputs["pairs"] == "0"


SHELL_WORDS = "$(touch hacked)`touch hacked`\"; touch hacked; \"'; touch hacked; '"


@pytest.mark.parametrize("text", [SHELL_WORDS, "--x"])
def test_inputs_are_literal(runner, repo, text: str) -> None:
    """No input but the two that are shell strings ever meets a shell, nor do lines of flags."""
    repo.commit({"x": "1"})
    shell = {"command", "setup", "working-directory", "artifact-name", "comment"}
    names = load(ACTION)["inputs"].keys() - shell
    found = runner.call(command="exit 1", **{name.replace("-", "_"): text for name in names})
    assert not list(runner.workspace.rglob("hacked"))
    assert not list(runner.temp.glob("hacked"))
    assert found.code == 2
    assert found.action_outputs["verdict"] == "error"


def test_a_fork_is_refused_before_its_code_runs(runner, repo) -> None:
    repo.commit({"bench.py": "open('ran', 'w')"})
    repo.on_github(fork_event())
    runner.env["GITHUB_EVENT_PATH"] = repo.env["GITHUB_EVENT_PATH"]
    found = runner.call(command="python bench.py", setup="touch ran")
    assert found.code == 2
    assert found.outputs["verdict"] == "error"
    assert "fork" in found.summary
    assert not (repo.path / "ran").exists()


def test_modules_of_the_checkout_do_not_stand_in_for_ours(own_runner, repo) -> None:
    """A pull request cannot decide its own gate with a package named like ours."""
    repo.commit({"advisor/__init__.py": "raise SystemExit(0)", "advisor/__main__.py": ""})
    own_runner.env["PYTHONPATH"] = str(repo.path)
    found = own_runner.call(command="exit 1")
    assert found.code == 0  # no baseline, a warning
    assert found.outputs["verdict"] == "no-baseline"


# --- another repository -----------------------------------------------------------------------


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
    record = report.read(Path(found.outputs["report-json"]))
    assert record.base.sha == base
    assert record.workloads[0].name == "train"
    folder = Path(found.outputs["report-md"]).parent
    assert (folder / "gate-comment.md").is_file()


def test_the_nightly_job_confirms_against_the_last_good_commit(runner) -> None:
    """Its second step finds the commit that the report of a red night names."""
    good = [Session(series="", machine="", created="", sha=40 * "a", value=100.0)] * 10
    reason = predict(good, 80.0, 0.05, "higher").reason
    red = record_of(program_of([80.0], [80.0])).model_copy(update={"reason": reason})
    (runner.temp / "night.json").write_text(red.model_dump_json(indent=1))
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
