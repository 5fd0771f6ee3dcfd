"""`optimize -- COMMAND`: a program without a config, tuned by the options that nobody typed."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from advisor import knobs
from advisor.commands import invocation, optimize
from advisor.errors import CommandMissingError
from advisor.executor.requests import Program, TrialRequest, Variant
from advisor.model import Candidate, MeasurePlan
from tests.runs import a_change

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "fixtures" / "programs" / "opt_flags.py"
OWN = '# mine\r\n[defaults]\r\nbudget = "9m" # é\r\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    shutil.copy(PROGRAM, tmp_path / "predict.py")
    monkeypatch.chdir(tmp_path)
    own = Path(sys.executable).parent  # the one with torch
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_an_option_that_nobody_typed_is_a_knob_and_a_candidate_adds_it(project) -> None:
    asked = invocation.resolve([], ["python", "predict.py", "--items", "40"])
    found = knobs.find(asked.command_line).knob("--batch-size")
    assert found.kind == "batch_size"
    assert found.value == 1
    assert found.editable is True
    assert asked.command_line.scalars["--batch-size"].given is False
    program = Program(
        command_line=asked.command_line, cwd=project, unit="sample",
        output_flags=("--out",),
    )  # fmt: skip
    candidate = Candidate(changes=(a_change("--batch-size", document="command line", new=16),))
    request = TrialRequest(
        variant=Variant(candidate=candidate), purpose="search", plan=MeasurePlan(), expected_s=1.0
    )
    assert program.trial("1", request, project / "s").command == (
        "python", "predict.py", "--batch-size", "16", "--items", "40",
        "--out", str(project / "s" / "outputs"),
    )  # fmt: skip
    assert program.argv(Candidate()) == asked.argv


def test_an_output_folder_is_pointed_elsewhere_only_where_it_was_typed(project) -> None:
    """A default may be where the program resumes from."""
    text = "import argparse\np = argparse.ArgumentParser()\n"
    text += "p.add_argument('-o', '--output-dir', default='out')\np.parse_args()\n"
    (project / "main.py").write_text(text)
    for words, outputs in {("-o", "mine"): ("--output-dir",), (): ()}.items():
        asked = invocation.resolve([], ["python", "main.py", *words])
        assert knobs.find(asked.command_line).outputs == outputs


DECLARED = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8, choices=[8, 16])
p.add_argument("--num-workers", type=int, default=2)
p.add_argument("--persistent-workers", action="store_true", default=True)
p.parse_args()
"""


def test_a_value_that_the_program_does_not_take_is_never_tried(project) -> None:
    """No words take `--persistent-workers` back, and it needs workers."""
    (project / "main.py").write_text(DECLARED)
    document = invocation.resolve([], ["python", "main.py"]).command_line
    findings = knobs.find(document)
    for flag, value, reason in (
        ("--batch-size", 32, "`--batch-size` cannot be set to 32"),
        ("--num-workers", 0, "`--persistent-workers` cannot be set to False"),
    ):
        refused = knobs.move(document, findings, flag, value)
        assert isinstance(refused, knobs.InvalidChange)
        assert reason in refused.reason
    assert isinstance(knobs.move(document, findings, "--batch-size", 16), tuple)


def test_a_config_and_a_program_that_stay_untuned_are_told(project) -> None:
    (project / "c.yaml").write_text("batch_size: 2\n")
    text = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--cfg')\np.parse_args()\n"
    )
    (project / "main.py").write_text(text)
    asked = invocation.resolve([], ["python", "main.py", "--cfg=c.yaml"])
    (note,) = optimize.left_untuned(asked)
    assert "`gpu-advisor optimize c.yaml -- ...`" in note
    (project / "broken.py").write_text("a = = 1\n")
    for name, why in (
        ("broken.py", "SyntaxError: invalid syntax"),
        ("gone.py", "python gone.py leads to no Python file"),
    ):
        (note,) = optimize.left_untuned(
            invocation.resolve([], ["python", name, "--batch-size", "4"])
        )
        assert note.startswith("only the options that you typed are known: ")
        assert why in note


PYTHON_CONFIG = {
    "by path": ["python", "main.py", "--config=configs/small.py"],
    "as a module": ["python", "main.py", "--config", "configs.small"],
    "imported": ["python", "imports.py"],
}


@pytest.mark.parametrize("case", PYTHON_CONFIG)
def test_a_python_config_is_found_by_path_by_module_and_by_import(
    project, monkeypatch, case
) -> None:
    (project / "configs").mkdir()
    (project / "configs" / "small.py").write_text("batch_size = 2\n")
    config = Path("configs/small.py")
    asked = invocation.resolve([config], PYTHON_CONFIG[case])
    assert asked.paths == (config,)
    monkeypatch.setenv("GPU_ADVISOR_ISOLATION", "guard")
    if case != "by path":  # nothing stands in for the file, so it must be named
        with pytest.raises(CommandMissingError, match="never names"):
            invocation.resolve([config], PYTHON_CONFIG[case])


@pytest.mark.slow
@pytest.mark.nightly
def test_a_program_without_a_config_gets_a_tuned_command(gpu_advisor, project) -> None:
    """Found, proven, and told in the report; no file but the report is written."""
    pytest.importorskip("torch")
    (project / "gpu-advisor.toml").write_bytes(OWN.encode())
    python = os.path.relpath(sys.executable, project)
    words = ("--window", "0.3s", "--budget", "2m")
    words = ("optimize", *words, "--json", "--", python, "predict.py")
    done = gpu_advisor.call(*words, cwd=project)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "improved"
    assert found["config"] == ""
    assert [c["path"] for c in found["changes"]] == ["--batch-size"]
    assert found["changes"][0]["knob_class"] == "free", "it was seen not to train"
    batch = found["changes"][0]["new"]
    assert found["tuned_command"] == f"{python} predict.py --batch-size {batch}"
    assert (project / "gpu-advisor.toml").read_bytes() == OWN.encode()
    report = (project / "report.md").read_text()
    assert report.startswith("<!--") or f"# {python} predict.py: " in report
    assert found["tuned_command"] in report
