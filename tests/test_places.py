"""Nothing of the user's is overwritten, and what cannot be written is said before the first trial.

Each call here ends before it starts the user's command: the command would leave a file.
"""

import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor import errors
from advisor.__main__ import main
from advisor.files.ours import is_marked
from advisor.report import writing
from advisor.report.schema import Report, SuggestionEntry
from tests.report import examples

CONFIG = '{"batch_size": 1}\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "infer.json").write_text(CONFIG)
    (folder / "run.py").write_text("open('it-ran', 'w').close()\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    return folder


def plain(**fields: Any) -> Report:
    """A report without a figure."""
    return examples.partial(trials=[], **fields)


def called(*argv: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def optimize(*flags: str, config: str = "infer.json") -> int:
    code = called("optimize", config, *flags, "--", sys.executable, "run.py", config)
    assert not Path("it-ran").exists(), "refused only after the first trial"
    return code


REFUSED = errors.OutputRefusedError.exit_code


OVER = {
    "--report": ("infer.md", "./sub/../infer.md", "linked.md", "infer.json", "hard.md"),
    "--output": ("hard.json",),
    "--report=tuned.md --output": ("tuned.json", "tuned.md"),
}


@pytest.mark.parametrize(("flag", "place"), [(f, p) for f in OVER for p in OVER[f]])
def test_no_file_of_ours_goes_over_the_config_however_it_is_spelled(
    project, flag, place, capsys
) -> None:
    """`--report infer.md` has its JSON beside it: the config. --overwrite changes nothing."""
    (project / "sub").mkdir()
    (project / "linked.md").symlink_to(project / "infer.json")
    codes = {REFUSED}
    if "hard" in place:  # a config of two names is refused by itself, too
        (project / place).hardlink_to(project / "infer.json")
        codes |= {errors.ConfigReadOnlyError.exit_code}
    for more in ((), ("--overwrite",)):
        assert optimize(*flag.split(), place, *more) in codes
    assert (project / "infer.json").read_text() == CONFIG
    assert "Traceback" not in capsys.readouterr().err


FIGURES = ("report-figures/batch.svg", "report-figures/rounds.svg")
MINE = ("report.md", "report.json", *FIGURES)


@pytest.mark.parametrize("name", [*MINE, "tuned.json"])
def test_a_file_of_the_users_is_refused_and_stays(project, name, capsys) -> None:
    mine = project / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine\n")
    assert optimize(*(("--output", name) if name == "tuned.json" else ())) == REFUSED
    assert mine.read_text() == "mine\n"
    assert "was not written by gpu-advisor" in capsys.readouterr().err


def test_overwrite_is_the_consent_and_our_own_files_need_none(project) -> None:
    """An empty file, as mktemp makes it, holds nothing to lose."""
    (project / "report.md").write_text("mine\n")
    (project / "report.json").touch()
    report = project / "report.md"
    claimed = writing.claim(report, overwrite=True)
    writing.write(plain(), report, claimed)
    first = {path.name for path in project.iterdir()}
    writing.write(plain(), report)
    assert {path.name for path in project.iterdir()} == first
    patched = SuggestionEntry(title="t", detail="d", patch="--- a/x.py\n+++ b/x.py\n")
    writing.write(examples.improved(suggestions=[patched]), project / "out" / "r.md")
    written = [path for path in (project / "out").rglob("*") if path.is_file()]
    assert {path.suffix for path in written} == {".md", ".json", ".svg", ".patch"}
    assert all(map(is_marked, written))


def test_what_became_another_s_since_it_was_claimed_is_not_written(project) -> None:
    """The measuring takes minutes; a file that appeared meanwhile stays."""
    claimed = writing.claim(project / "report.md")
    (project / "report.md").write_text("mine\n")
    with pytest.raises(errors.OutputRefusedError, match="not written by gpu-advisor"):
        writing.write(plain(), project / "report.md", claimed)
    assert (project / "report.md").read_text() == "mine\n"
    (project / "report.md").unlink()
    (project / "report.md").symlink_to(project / "new.md")
    with pytest.raises(errors.OutputRefusedError, match="since it was looked at"):
        writing.write(plain(), project / "report.md", claimed)
    assert not (project / "new.md").exists()


def test_report_does_not_replace_notes_beside_a_json(project, capsys) -> None:
    """`report notes.json` renders notes.md, which may be the user's."""
    (project / "notes.json").write_text(writing.dump(plain()))
    (project / "notes.md").write_text("mine\n")
    assert called("report", "notes.json") == REFUSED
    assert (project / "notes.md").read_text() == "mine\n"
    assert called("report", "notes.json", "--output", "new/place.md") == 0
    assert called("report", "notes.json", "--overwrite") == 0
    assert (project / "notes.md").read_text().startswith("# ")


def test_what_is_no_place_for_a_file_is_said_before_the_first_trial(project, capsys) -> None:
    os.mkfifo(project / "fifo")
    os.mkfifo(project / "pipe.md")
    (project / "folder.md").mkdir()
    (project / "loop.md").symlink_to("loop.md")
    (project / "file").touch()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket.md")
    for place in ("fifo", "/dev/null", "file/tuned.json", "loop.md", "x" * 300):
        assert optimize("--output", place) == REFUSED, place
        assert optimize("--output", place, "--overwrite") == REFUSED, place
    for place in ("pipe.md", "folder.md", "loop.md", "socket.md", "file/r.md", "/dev/full"):
        assert optimize("--report", place) == REFUSED, place
    listening.close()
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert "named pipe" in shown


@pytest.mark.parametrize(("config", "most"), [(0o600, 0o600), (0o640, 0o640), (0o444, 0o644)])
def test_a_report_is_open_to_no_more_people_than_the_config(project, config, most) -> None:
    (project / "infer.json").chmod(config)
    report = project / "sub" / "report.md"
    writing.write(plain(), report, writing.claim(report, like=project / "infer.json"))
    for path in [report.parent, *report.parent.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o077 & ~(most | (most & 0o444) >> 2), (path, oct(mode))
        assert mode & 0o600 == 0o600


def test_what_json_prints_and_what_is_kept_masks_the_same(project) -> None:
    """One place masks: what is printed by --json is the head of report.json."""
    report = plain(reason="ran with --api-key hunter2", config="c.json")
    writing.write(report, project / "report.md")
    assert "hunter2" not in (project / "report.md").read_text()
    written = json.loads((project / "report.json").read_text())
    assert written["reason"] == "ran with --api-key ***"
