"""The action and the example workflows: linted, pinned, and executed as GitHub would."""

import importlib.util
import os
import re
import shutil
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from gate_examples import program_of, record_of

from advisor import __version__
from advisor.gate import report
from advisor.gate.history import DailyRate, predict
from advisor.sandbox.capabilities import FORCED
from tests.gate.repos import OUTPUTS, ROOT, STEADY
from tests.gate.runner import ACTION, PATH, Runner, load, steps_of
from tests.support.processes import ran

EXAMPLES = ROOT / "docs/examples/workflows"
WORKFLOWS = sorted([*(ROOT / ".github/workflows").glob("*.yml"), *EXAMPLES.glob("*.yml")])


def linted(name: str, *words: object, given: str = "") -> None:
    """This tool finds nothing."""
    tool = shutil.which(name, path=PATH)
    if tool is None:
        pytest.skip(f"{name} is not installed: pip install gpu-advisor[dev]")
    done = ran(tool, *map(str, words), input=given)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("check-jsonschema", "--builtin-schema", "vendor.github-actions", ACTION),
        ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS),
        ("zizmor", "--offline", "--persona=auditor", "--format=plain", ACTION, *WORKFLOWS),
    ],
    ids=["action", "workflows", "zizmor"],
)
def test_the_files_are_linted(words) -> None:
    linted(*map(str, words))


def test_shell_of_the_files_is_linted(tmp_path) -> None:
    """Of the action's steps, the workflows, and the one that the guide begins with."""
    scripts = []
    for number, step in enumerate(step for step in steps_of(ACTION) if "run" in step):
        scripts.append(tmp_path / str(number))
        scripts[-1].write_text(step["run"])
    linted("shellcheck", "--shell=bash", *scripts)
    guide = (ROOT / "docs" / "gate.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (shown,) = (text for text in examples if "jobs:" in text)
    lint = ("actionlint", "-no-color", "-config-file", ROOT / ".github/actionlint.yaml")
    lint += ("-shellcheck", shutil.which("shellcheck", path=PATH) or "")
    linted(*lint, *WORKFLOWS)
    linted(*lint, "-", given=shown)


def test_the_examples_name_this_version_of_the_action() -> None:
    """All else they use is pinned, and they hold few rights: zizmor sees to that."""
    own = {"./", f"gpu-advisor/gpu-advisor@v{__version__}"}
    uses = {step.get("uses", "./") for path in WORKFLOWS for step in steps_of(path)}
    assert {use for use in uses if "gpu-advisor" in use} <= own
    assert not any(40 * "0" in path.read_text() for path in [ACTION, *WORKFLOWS])


def test_every_input_has_a_text_as_default_and_every_output_a_value() -> None:
    content = load(ACTION)
    assert set(content["outputs"]) == OUTPUTS
    documented = (ROOT / "docs" / "gate.md").read_text()
    for name, entry in {**content["inputs"], **content["outputs"]}.items():
        assert entry["description"]
        assert isinstance(entry.get("default", ""), str)
        assert f"`{name}`" in documented, name


def test_the_lock_names_every_dependency_with_its_hashes() -> None:
    """Of ours, and theirs: pip is told to take nothing else."""
    lock = (ROOT / "requirements.lock").read_text()
    hashes = r"((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)"
    names = {name for name, _ in re.findall(rf"^([\w.-]+)==\S+.*\n{hashes}", lock, re.MULTILINE)}
    assert len(names) == len(re.findall(r"^\S+==", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=!~ ;]", each)[0] for each in project["dependencies"]}
    for line in [line for name in wanted for line in metadata.requires(name) or ()]:
        if "extra ==" not in line and "python_version <" not in line:
            wanted.add(re.split(r"[<>=!~ ;(\[]", line)[0].lower().replace("_", "-"))
    assert wanted <= names
    installs = next(step["run"] for step in steps_of(ACTION) if "Install" in step["name"])
    for words in ('home="$RUNNER_TEMP/gpu-advisor"', "--require-hashes", "--only-binary :all:"):
        assert words in installs


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


def test_no_module_of_the_checkout_is_run_by_the_installation(repo, tmp_path) -> None:
    """Whatever it is called: it would run before anybody asked whose code it is."""
    tools, ran = tmp_path / "tools", tmp_path / "ran"
    tools.mkdir()
    for name in ("rm", "mkdir", "cp", "ln"):
        (tools / name).symlink_to(shutil.which(name) or name)
    pip = importlib.util.find_spec("pip")
    folder = Path(str(pip.origin)).parent
    script = WITH_PIP.format(python=sys.executable, home=tmp_path / "gpu-advisor", pip=folder)
    (tools / "python3.11").write_text(script)
    (tools / "python3.11").chmod(0o755)
    repo.commit({name: f"open({str(ran)!r}, 'a').write(__file__)\n" for name in SHADOWS})
    runner = Runner(workspace=repo.path, temp=tmp_path)
    runner.env = {"PYTHONPATH": str(repo.path), "PATH": str(tools)}
    runner.env["PIP_INDEX_URL"] = (tmp_path / "none").as_uri()
    found = runner.call(installs=True, command="python bench.py")
    assert found.code == 2, found.log  # there is no package index
    assert (tmp_path / "gpu-advisor" / "venv" / "bin" / "python").exists()
    assert not ran.exists(), ran.read_text()


def test_an_installation_that_fails_is_an_error_and_no_regression(repo, tmp_path) -> None:
    runner = Runner(workspace=repo.path, temp=tmp_path, env={"PATH": "/nowhere"})
    found = runner.call(installs=True)
    assert found.code not in {0, 1}
    assert found.outputs["verdict"] == "error"
    assert found.outputs["pairs"] == "0"


@pytest.mark.slow
@pytest.mark.nightly
def test_the_first_step_installs_without_touching_any_torch(two, tmp_path) -> None:
    """From a package index, into an environment of its own; then a whole gate with it."""
    program = STEADY.format(rate=100)
    runner = Runner(workspace=two(program, program).path, temp=tmp_path)
    found = runner.call(installs=True, command="python bench.py")
    assert found.outputs["verdict"] == "pass", found.log
    packages = {path.name for path in (tmp_path / "gpu-advisor").rglob("site-packages/*")}
    assert "gpu-advisor.pth" in packages
    assert "torch" not in packages


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private environment as the first step leaves it, without asking a package index."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    target = next((folder / "lib").glob("python*")) / "site-packages"
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (target / "own.pth").write_text("\n".join([str(ROOT), *packages]))
    return folder


@pytest.fixture
def runner(repo, tmp_path: Path, installed: Path) -> Runner:
    """A runner after the first step."""
    temp = tmp_path / "runner"
    (temp / "gpu-advisor").mkdir(parents=True)
    (temp / "gpu-advisor" / "venv").symlink_to(installed)
    return Runner(workspace=repo.path, temp=temp)


def test_another_repository_consumes_the_action(runner, repo) -> None:
    """Its checkout, its program and its gpu-advisor.toml, called by the example workflow."""
    runner.env[FORCED] = "guard"
    steps = steps_of(EXAMPLES / "gate-pull-request.yml")
    (step,) = (step for step in steps if "gpu-advisor" in step.get("uses", ""))
    settings = '[workload.train]\ncommand = "python train.py"\nunit = "sample"\n'
    base = repo.commit({"train.py": STEADY.format(rate=100), "gpu-advisor.toml": settings})
    repo.git("checkout", "-q", "-b", "change")
    repo.commit({"train.py": STEADY.format(rate=98), "notes.md": "changed"})
    own = {"repo": {"full_name": "me/mine", "fork": False}}
    repo.on_github({"pull_request": {"base": {"sha": base, "ref": "main", **own}, "head": own}})
    runner.env["GITHUB_EVENT_PATH"] = repo.env["GITHUB_EVENT_PATH"]
    found = runner.call(**{name.replace("-", "_"): text for name, text in step["with"].items()})
    assert found.code == 0, found.log
    assert found.outputs["verdict"] == "pass", found.log
    assert found.outputs.keys() == OUTPUTS
    assert float(found.outputs["slowdown-pct"]) == pytest.approx(2, abs=0.3)
    title = found.summary.partition("\n")[0]
    assert re.fullmatch(r"# Throughput: no regression, [12]\.\d+ % slower \(allowed 5 %\)", title)
    path = Path(found.outputs["report-json"])
    record = report.read(path)
    assert record.base.sha == base
    assert record.workloads[0].name == "train"
    posted, calls = comment_of(runner, path.read_text())
    assert "POST repos/us/x/issues/7/comments" in calls
    assert posted.strip() in path.with_name("gate-comment.md").read_text()


GH = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *GET*pulls*) echo 7 ;;
  *PATCH*|*POST*)
    for word; do
      case "$word" in body=@*) cp "${{word#body=@}}" {log}.md ;; esac
    done ;;
  *paginate*) echo {known} ;;
esac
"""
"""Stands in for GitHub's program: notes each call, and keeps the comment."""


def comment_of(runner: Runner, record: str, known: str = "") -> tuple[str, str]:
    """Comment that the action posts of a workflow run's record, and its calls of GitHub."""
    tools, log = runner.temp / "tools", runner.temp / "gh"
    tools.mkdir()
    (tools / "gh").write_text(GH.format(log=log, known=known))
    (tools / "gh").chmod(0o755)
    fetched = runner.temp / "gpu-advisor" / "fetched"
    fetched.mkdir()
    (fetched / "gate.json").write_text(record)
    (fetched / "gate-comment.md").write_text("@everybody: text of the artifact")
    runner.facts = {"github.repository": "us/x"}
    runner.env["PATH"] = f"{tools}:{os.environ['PATH']}"
    found = runner.call(comment="true")
    assert found.code == 0, found.log
    return Path(f"{log}.md").read_text(), log.read_text()


def test_a_comment_that_is_there_is_replaced(runner) -> None:
    record = record_of(program_of([1.0], [1.0], "@octocat")).model_dump_json()
    posted, calls = comment_of(runner, record, known="42")
    assert posted.startswith("<!-- gpu-advisor gate -->\n\n### Throughput: ")
    assert "PATCH repos/us/x/issues/comments/42" in calls
    assert "@octocat" not in posted


def test_a_record_that_is_malformed_is_not_posted(runner) -> None:
    with pytest.raises(AssertionError, match="could not be read"):
        comment_of(runner, '{"verdict": "pass"}')
    assert not (runner.temp / "gh").exists()


def test_inputs_are_literal(runner, repo) -> None:
    """No input but the two that are shell strings ever meets a shell, nor do lines of flags."""
    repo.commit({"x": "1"})
    words = "--x $(touch hacked)`touch hacked`\"; touch hacked; \"'; touch hacked; '"
    shell = {"command", "setup", "working-directory", "artifact-name", "comment"}
    names = load(ACTION)["inputs"].keys() - shell
    found = runner.call(command="exit 1", **{name.replace("-", "_"): words for name in names})
    assert not list(runner.workspace.parent.rglob("hacked"))
    assert found.code == 2
    assert found.outputs["verdict"] == "error"


def test_modules_of_the_checkout_do_not_stand_in_for_ours(runner, repo) -> None:
    """A pull request cannot decide its own gate with a package named like ours."""
    repo.commit({"advisor/__init__.py": "raise SystemExit(0)", "advisor/__main__.py": ""})
    runner.env["PYTHONPATH"] = str(repo.path)
    found = runner.call(command="exit 1")
    assert found.code == 0, found.log
    assert found.outputs["verdict"] == "no-baseline", found.log
    assert "first commit" in found.summary


def test_the_nightly_job_confirms_against_the_last_good_commit(runner) -> None:
    """Its second step finds the commit that the report of a red night names."""
    good = [DailyRate(series="", machine="", created="", sha=40 * "a", value=100.0)] * 10
    reason = predict(good, 80.0, 0.05, "higher")["reason"]
    red = record_of(program_of([80.0], [80.0])).model_copy(update={"reason": reason})
    (runner.temp / "night.json").write_text(red.model_dump_json(indent=1))
    steps = steps_of(EXAMPLES / "history-nightly.yml")
    (step,) = (step for step in steps if step.get("id") == "last")
    found = runner.run_step({**step, "env": {"REPORT": str(runner.temp / "night.json")}})
    assert found.outputs["sha"] == 40 * "a", found.log


TUNED = """
import json, sys, time
size = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.004 + 0.001 * size)
    print("done", size, "items", flush=True)
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_the_tuning_job_leaves_diff_and_report(runner, repo) -> None:
    """Its steps after the installation, in a user's repository: artifact, summary, no push."""
    command = 'command = "python infer.py {config}"\nconfig = "infer.json"\nphase = "test"\n'
    command += 'unit-regex = "done ([0-9]+) items"\n'
    settings = f"[workload.infer]\n{command}"
    files = {"infer.py": TUNED, "infer.json": '{"batch_size": 2}\n', "gpu-advisor.toml": settings}
    repo.commit(files)
    script = runner.temp / "gpu-advisor" / "bin" / "gpu-advisor"
    script.parent.mkdir()
    python = runner.temp / "gpu-advisor" / "venv" / "bin" / "python"
    script.write_text(f"#!{python}\nfrom advisor.__main__ import main; main()\n")
    script.chmod(0o755)
    runner.facts = {"inputs.config": "infer.json", "inputs.budget": "40s"}
    tuned, summary = runner.temp / "tuned", ""
    for step in steps_of(EXAMPLES / "tune.yml"):
        if "run" in step and "Install" not in step["name"]:
            found = runner.run_step(step)
            assert found.code == 0, found.log
            summary += found.summary
            # As a longer budget would have left it.
            (repo.path / "infer.json").write_text('{"batch_size": 64}\n')
    assert '-{"batch_size": 2}\n+{"batch_size": 64}' in (tuned / "config.diff").read_text()
    assert (tuned / "report.md").read_text().startswith("# infer.json")
    assert (tuned / "report.json").is_file()
    assert summary.startswith("# infer.json")
