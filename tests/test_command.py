"""`optimize -- COMMAND`: a program without a config, tuned by the options that nobody typed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from advisor import knobs
from advisor.commands import invocation
from advisor.commands import session as job
from advisor.commands import settings_entry as entry
from advisor.errors import (
    CommandMissingError,
    ConfigMissingError,
    ConfigReadOnlyError,
    ConfigSyntaxError,
    OutputRefusedError,
    TargetError,
    UsageError,
)
from advisor.executor.program import Program
from advisor.executor.requests import TrialRequest, Variant
from advisor.model import Candidate, Change, MeasurePlan

if TYPE_CHECKING:
    import subprocess

    from tests import warm

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


def call(gpu_advisor: warm.Server, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return gpu_advisor.call("optimize", *words, cwd=project)


def change(path: str, new: int, old: int = 1) -> Change:
    return Change(
        document="command line", path=path, kind="batch_size", knob_class="free", old=old, new=new
    )


# --- what is found and run ----------------------------------------------------------------------


def test_an_option_that_nobody_typed_is_a_knob_and_a_candidate_adds_it(project: Path) -> None:
    asked = invocation.resolve(None, ["python", "predict.py", "--items", "40"])
    found = knobs.find(asked.command_line).knob("--batch-size")
    assert found is not None
    assert (found.kind, found.value, found.editable) == ("batch_size", 1, True)
    assert found.why.endswith("the program's own default, predict.py:19")
    program = Program(
        config=None, command_line=asked.command_line, cwd=project, unit="sample",
        output_flags=("--out",),
    )  # fmt: skip
    candidate = Candidate(changes=(change("--batch-size", 16),))
    request = TrialRequest(
        variant=Variant(candidate=candidate), purpose="search", plan=MeasurePlan(), expected_s=1.0
    )
    assert program.trial("1", request, project / "s").command == (
        "python", "predict.py", "--batch-size", "16", "--items", "40",
        "--out", str(project / "s" / "outputs"),
    )  # fmt: skip
    assert program.argv(Candidate()) == asked.argv


def test_where_a_config_is_named_its_values_count_and_not_the_defaults(project: Path) -> None:
    """Else one setting would be two knobs, of which the program follows one."""
    (project / "c.yaml").write_text("batch_size: 2\n")
    asked = invocation.resolve(Path("c.yaml"), ["python", "predict.py", "--cfg", "c.yaml"])
    assert list(asked.command_line.scalars) == ["--cfg"]


def test_an_output_folder_is_pointed_elsewhere_only_where_it_was_typed(project: Path) -> None:
    """A default may be where the program resumes from."""
    text = "import argparse\np = argparse.ArgumentParser()\n"
    text += "p.add_argument('-o', '--output-dir', default='out')\np.parse_args()\n"
    (project / "main.py").write_text(text)
    for words, outputs in {("-o", "mine"): ("--output-dir",), (): ()}.items():
        asked = invocation.resolve(None, ["python", "main.py", *words])
        assert knobs.find(asked.command_line).outputs == outputs


CHOICES = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8, choices=[8, 16])
p.parse_args()
"""


def test_a_value_that_the_program_does_not_take_is_never_tried(project: Path) -> None:
    (project / "main.py").write_text(CHOICES)
    document = invocation.resolve(None, ["python", "main.py"]).command_line
    findings = knobs.find(document)
    refused = knobs.move(document, findings, "--batch-size", 32)
    assert isinstance(refused, knobs.InvalidChange)
    assert "the program takes only 8, 16" in refused.reason
    assert isinstance(knobs.move(document, findings, "--batch-size", 16), tuple)


SWITCHES = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--num-workers", type=int, default=2)
p.add_argument("--persistent-workers", action="store_true", default=True)
p.parse_args()
"""


def test_a_switch_that_can_only_be_put_on_keeps_what_needs_it(project: Path) -> None:
    """No words take `--persistent-workers` back, and it needs workers."""
    (project / "main.py").write_text(SWITCHES)
    document = invocation.resolve(None, ["python", "main.py"]).command_line
    findings = knobs.find(document)
    refused = knobs.move(document, findings, "--num-workers", 0)
    assert isinstance(refused, knobs.InvalidChange)
    assert "--persistent-workers cannot be set to False" in refused.reason


def test_a_config_that_the_command_names_is_left_and_told(project: Path) -> None:
    (project / "c.yaml").write_text("batch_size: 2\n")
    text = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--cfg')\np.parse_args()\n"
    )
    (project / "main.py").write_text(text)
    asked = invocation.resolve(None, ["python", "main.py", "--cfg=c.yaml"])
    (note,) = job.left_untuned(asked)
    assert "gpu-advisor optimize c.yaml -- ..." in note


UNREAD = {
    "broken.py": "SyntaxError: invalid syntax",
    "gone.py": "python gone.py leads to no Python file",
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_program_whose_options_are_unknown_says_why(project: Path, name: str) -> None:
    (project / "broken.py").write_text("a = = 1\n")
    (note,) = job.left_untuned(invocation.resolve(None, ["python", name, "--batch-size", "4"]))
    assert note.startswith("only the options that you typed are tuned: ")
    assert UNREAD[name] in note


PYTHON_CONFIG = {
    "by path": ["python", "main.py", "--config=configs/small.py"],
    "as a module": ["python", "main.py", "--config", "configs.small"],
    "imported": ["python", "imports.py"],
}


@pytest.mark.parametrize("case", PYTHON_CONFIG)
def test_a_python_config_is_found_by_path_by_module_and_by_import(project: Path, case: str) -> None:
    (project / "configs").mkdir()
    (project / "configs" / "small.py").write_text("batch_size = 2\n")
    (project / "main.py").write_text("import sys\n")
    (project / "imports.py").write_text("from configs import small\n")
    asked = invocation.resolve(Path("configs/small.py"), PYTHON_CONFIG[case])
    assert asked.config is not None
    with pytest.raises(CommandMissingError, match="never names"):
        invocation.resolve(Path("configs/small.py"), ["python", "main.py"])


# --- where the tuned command is written ---------------------------------------------------------

ENTRIES = {
    "a file that is not there": (None, "[workload.predict]\n", "\n"),
    "an entry that is not there": (OWN, f"{OWN}\r\n[workload.predict]\r\n", "\r\n"),
    "a last line without an end": ("[defaults]", "[defaults]\n\n[workload.predict]\n", "\n"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_the_tuned_command_is_added_behind_all_that_is_there(project: Path, case: str) -> None:
    own, start, newline = ENTRIES[case]
    if own is not None:
        (project / "gpu-advisor.toml").write_bytes(own.encode())
    asked = invocation.resolve(None, ["python", "predict.py", "--items", "4 "])
    content = entry.place(asked).content((change("--batch-size", 8),))
    line = "command = \"python predict.py --batch-size 8 --items '4 '\""
    assert content.decode() == start + line + newline


def test_an_entry_that_is_there_is_edited_and_nothing_else(project: Path) -> None:
    text = (
        OWN + '[workload.predict]\r\nunit = "x"\r\n'
        "command = 'python predict.py --items 4'  # why\r\n[workload.b]\r\ncommand = 'ls'\r\n"
    )
    (project / "gpu-advisor.toml").write_bytes(text.encode())
    asked = invocation.resolve(None, None, workload="predict")
    content = entry.place(asked).content((change("--batch-size", 8),))
    assert content.decode() == text.replace(
        "predict.py --items", "predict.py --batch-size 8 --items"
    )


def test_the_configs_place_in_an_entry_stays_a_place(project: Path) -> None:
    (project / "c.yaml").write_text("batch_size: 2\n")
    text = '[workload.p]\nconfig = "c.yaml"\ncommand = "python predict.py -c {config} --batch 2"\n'
    (project / "gpu-advisor.toml").write_text(text)
    asked = invocation.resolve(Path("c.yaml"), None)
    content = entry.place(asked).content((change("--batch", 8, 2),))
    assert content.decode() == text.replace("--batch 2", "--batch 8")


def test_a_taken_name_is_not_taken_again(project: Path) -> None:
    (project / "gpu-advisor.toml").write_text('[workload.predict]\ncommand = "ls"\n')
    asked = invocation.resolve(None, ["python", "predict.py"])
    content = entry.place(asked).content(())
    assert list(tomllib.loads(content.decode())["workload"]) == ["predict", "predict-2"]


UNWRITABLE = {
    "a shell": ('[workload.a]\ncommand = "cd x && python predict.py"\n', "shell"),
    "a block of text": ('[workload.a]\ncommand = """python\npredict.py"""\n', "block of text"),
    "inline tables": ('workload = {b = {command = "ls"}}\n', "Cannot"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_a_command_that_cannot_be_written_is_refused_before_anything_runs(
    project: Path, case: str
) -> None:
    text, said = UNWRITABLE[case]
    (project / "gpu-advisor.toml").write_text(text)
    named = "a" if "workload.a" in text else None
    asked = invocation.resolve(None, None if named else ["python", "predict.py"], workload=named)
    with pytest.raises(UsageError, match=said) as caught:
        entry.place(asked)
    assert "Call without it" in str(caught.value)


def test_settings_of_another_folder_are_not_written(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands run where it lies: there this one would not."""
    (project / "gpu-advisor.toml").write_text(OWN)
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    asked = invocation.resolve(None, ["python", "../predict.py"])
    with pytest.raises(UsageError, match="call from there"):
        entry.place(asked)


# --- the whole call -----------------------------------------------------------------------------

REFUSED = {
    "a program that does not exist": (
        ["--", "pyhton", "predict.py"],
        CommandMissingError,
        "`pyhton predict.py` cannot run: 'pyhton' is not in PATH",
    ),
    "a script that does not exist": (
        ["--", sys.executable, "-u", "gone.py"],
        CommandMissingError,
        "gone.py does not exist",
    ),
    "a target that does not exist": (
        ["--target", "rtx-1", "--", "sh", "predict.py"],
        TargetError,
        "rtx-1",
    ),
    "nothing at all": ([], CommandMissingError, "No command was given"),
    "--output": (["--output", "x.yaml", "--", "python", "x.py"], UsageError, "--write-toml"),
    "a config that is gone": (["c.py", "--", "python", "c.py"], ConfigMissingError, "c.py"),
    "a broken Python config": (
        ["broken.py", "--", "python", "predict.py", "broken.py"],
        ConfigSyntaxError,
        "broken.py, line 1, column 5: not valid Python",
    ),
    "a report over the settings": (
        ["--write-toml", "--report", "report.md", "--overwrite", "--", "sh", "predict.py"],
        OutputRefusedError,
        "report.json",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_has_its_code_and_one_message(
    gpu_advisor: warm.Server, project: Path, case: str
) -> None:
    words, error, said = REFUSED[case]
    (project / "broken.py").write_text("a = = 1\n")
    if "report" in case:
        (project / "report.json").mkdir()
    done = call(gpu_advisor, project, *words)
    assert done.returncode == error.exit_code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    made = {path.name for path in project.iterdir()}
    assert made <= {".git", "predict.py", "broken.py", "report.json"}


def test_settings_that_are_read_only_are_refused_before_anything_runs(
    gpu_advisor: warm.Server, project: Path
) -> None:
    (project / "gpu-advisor.toml").write_text(OWN)
    (project / "gpu-advisor.toml").chmod(0o444)
    done = call(gpu_advisor, project, "--write-toml", "--", "python", "predict.py")
    assert done.returncode == ConfigReadOnlyError.exit_code, done.stderr
    assert "gpu-advisor.toml cannot be rewritten: the file is read-only" in done.stderr
    assert not (project / "report.md").exists()


@pytest.mark.slow
def test_a_program_without_a_config_gets_a_tuned_command(
    gpu_advisor: warm.Server, project: Path
) -> None:
    """Found, proven, told, written into gpu-advisor.toml, used from there, and taken back."""
    pytest.importorskip("torch")
    (project / "gpu-advisor.toml").write_bytes(OWN.encode())
    python = os.path.relpath(sys.executable, project)
    words = ("--window", "0.3s", "--budget", "60s")
    done = call(gpu_advisor, project, *words, "--json", "--write-toml", "--", python, "predict.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["config"]) == ("improved", "")
    assert [c["path"] for c in found["changes"]] == ["--batch-size"]
    assert found["changes"][0]["class"] == "free", "it was seen not to train"
    batch = found["changes"][0]["to"]
    assert found["tuned_command"] == f"{python} predict.py --batch-size {batch}"
    written = (project / "gpu-advisor.toml").read_bytes().decode()
    assert written == f'{OWN}\r\n[workload.predict]\r\ncommand = "{found["tuned_command"]}"\r\n'
    report = (project / "report.md").read_text()
    assert report.startswith("<!--") or f"# {python} predict.py: " in report
    assert found["tuned_command"] in report

    undone = gpu_advisor.call("revert", "gpu-advisor.toml", cwd=project)
    assert undone.returncode == 0, undone.stderr
    assert (project / "gpu-advisor.toml").read_bytes() == OWN.encode()
