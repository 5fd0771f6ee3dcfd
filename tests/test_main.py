"""The command line itself: help, typing errors, exit codes, no traceback."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import errors
from advisor.__main__ import build_parser
from advisor.commands.output import fitted
from tests.support.processes import Done, ran

ROOT = Path(__file__).resolve().parents[1]
ENV = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}


def advisor(*argv: str, cwd: Path = ROOT) -> Done:
    return ran(sys.executable, "-m", "advisor", *argv, cwd=cwd, timeout=60, env=ENV)


def test_help_names_every_command() -> None:
    done = advisor("--help")
    assert done.returncode == 0
    for name in ("optimize", "inspect", "profile", "predict", "gate", "revert", "report"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", ["optimize", "compare", "profile", "inspect", "doctor", "gate"])
def test_the_help_shows_where_the_command_goes(name) -> None:
    assert build_parser(name).format_usage().rstrip().endswith("[-- COMMAND ...]")


def test_the_shell_completes_commands_options_and_values() -> None:
    """By a script that bash takes, in a shell that has read it."""
    pytest.importorskip("shtab")
    script = advisor("--print-completion", "bash").stdout
    line = "COMP_WORDS=(gpu-advisor {}); COMP_CWORD={}; {}; echo ${{COMPREPLY[@]}}"
    function = re.findall(r"complete .*-F (\S+) gpu-advisor", script)[0]

    def completed(*words: str) -> list[str]:
        asked = line.format(" ".join(words), len(words), function)
        done = ran("bash", "-c", f"{script}\n{asked}")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert completed("opt") == ["optimize"]
    assert "--budget" in completed("optimize", "--b")
    assert advisor("--print-completion", "dos").returncode == errors.UsageError.exit_code


def test_a_misspelled_command_names_the_near_one() -> None:
    done = advisor("optimise")
    assert done.returncode == errors.UsageError.exit_code
    assert "Did you mean 'optimize'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("optimize c.json python train.py", "needs `--` before it"),
        ("optimize --bugdet 4m config.json", "unrecognized arguments: --bugdet"),
        ("gate --basse main", "unrecognized arguments: --basse (did you mean --base-ref?)"),
    ],
)
def test_unknown_words_are_named_with_the_usage(tmp_path, line, expected) -> None:
    done = advisor(*line.split(), cwd=tmp_path)
    assert done.returncode == errors.UsageError.exit_code
    assert expected in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_help_of_optimize_fits_one_screen() -> None:
    """Seventeen options beside --help, in at most 40 lines of 100 columns."""
    lines = advisor("optimize", "--help").stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    options = {word for line in lines for word in re.findall(r"^  (?:-h, )?(--[a-z-]+)", line)}
    assert len(options - {"--help"}) <= 17


def test_errors_show_no_traceback_unless_asked(tmp_path) -> None:
    plain = advisor("revert", str(tmp_path / "no.json"))
    assert plain.returncode == errors.ConfigMissingError.exit_code
    assert "Traceback" not in plain.stderr
    assert "Traceback" in advisor("revert", str(tmp_path / "no.json"), "--debug").stderr


def leaves(cls: type[errors.AdvisorError]) -> list[type[errors.AdvisorError]]:
    """Subclasses that leave the program; a room's own signals to itself do not.

    One that is a case of another, and leaves with its code, counts as that one.
    """
    found = []
    for sub in cls.__subclasses__():
        if sub.exit_code == cls.exit_code != errors.AdvisorError.exit_code:
            continue
        found += [sub, *leaves(sub)] if sub.__module__ == errors.__name__ else leaves(sub)
    return found


def test_every_error_class_has_an_exit_code_of_its_own() -> None:
    codes = [
        cls.exit_code for cls in leaves(errors.AdvisorError) if cls is not errors.TrialFailedError
    ]
    assert len(codes) == len(set(codes))
    kinds = {k: v for k, v in errors.FAILURE_EXIT_CODES.items() if k != "interrupted"}
    assert len(set(kinds.values())) == len(kinds)
    assert not set(kinds.values()) & set(codes)
    for kind, code in errors.FAILURE_EXIT_CODES.items():
        assert errors.TrialFailedError(kind, "x").exit_code == code


def table_codes() -> set[int]:
    """Exit codes that README's table names; a range means those of it that exist."""
    text = (ROOT / "README.md").read_text().partition("## Exit codes")[2].partition("\n`gate`")[0]
    found: set[int] = set()
    for cell in re.findall(r"^\| ([0-9][^|]*) \|", text, re.MULTILINE):
        for part in cell.split(","):
            low, _, high = part.strip().partition("-")
            found |= set(range(int(low), int(high or low) + 1))
    return found


def test_every_exit_code_stands_in_readmes_table_and_every_code_there_exists() -> None:
    real = {cls.exit_code for cls in leaves(errors.AdvisorError)}
    real -= {errors.NoBaselineError.exit_code}  # the gate's
    real |= {errors.AdvisorError.exit_code, *errors.FAILURE_EXIT_CODES.values()}
    real |= set(errors.OPTIMIZE_EXIT_CODES.values())
    assert table_codes() == real


def test_every_error_of_the_tree_is_raised_somewhere() -> None:
    """A code that no line can lead to is a false promise."""
    source = "".join(
        path.read_text() for path in (ROOT / "advisor").rglob("*.py") if path.name != "errors.py"
    )
    for cls in leaves(errors.AdvisorError):
        assert re.search(rf"\b{cls.__name__}\(", source), f"{cls.__name__} is never raised"


@pytest.mark.parametrize(("encoding", "flags"), [("utf-8:strict", []), ("ascii", ["--json"])])
def test_names_that_the_terminal_cannot_show_end_nothing(tmp_path, encoding, flags) -> None:
    """Neither bytes that are no text nor letters that an encoding lacks; what is JSON stays so."""
    folder = os.fsencode(tmp_path) + "/\u753b".encode() + b"\xff"
    os.mkdir(folder)  # noqa: PTH102  pathlib takes no bytes
    python = folder + b"/python"
    os.symlink("/usr/bin/false", python)  # noqa: PTH211
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "doctor", *flags, "--", python],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
        env={**ENV, "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    if flags:
        assert json.loads(done.stdout.decode("ascii"))["checks"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_breaks_no_word(terminal, monkeypatch) -> None:
    """Elsewhere a line stays one line, for what reads it."""
    monkeypatch.setenv("COLUMNS", "24")
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    text = "Waiting takes 96 %.\n\n  4 steps of a training-run in 2 s"
    broken = "Waiting takes 96 %.\n\n  4 steps of a\n    training-run in 2 s"
    assert fitted(text, stream) == (broken if terminal else text)
